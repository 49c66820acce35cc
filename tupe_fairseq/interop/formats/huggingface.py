"""Directories of Hugging Face's `transformers`: config.json and model.safetensors.

A model with the encoding `learned` is RoBERTa of transformers; every other is written with its
own code (`tupe_classes.py`), and `learned` too with --classes tupe.

RoBERTa here and there count positions from padding_idx + 1 = 2 and have the same layers.
`transformers` also has a table of token types, which is zero here. Ids are those of dict.txt,
which is copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import CheckpointError, ConfigurationError
from ...extras import import_extra
from ...standalone.files import (
    check_fit,
    read_config,
    write_config,
    write_tensors,
)
from .. import tupe_classes
from ..conversion import Conversion, Forward, Option, register
from ..dictionaries import dictionary_text
from ..directory import ENCODER, POSITIONS, WORDS, Converted, build, building, check_head, renamed
from ..families import CAUSAL, MASKED
from ..keys import Rule, Table, to_ours, to_theirs
from ..settings import functions, sizes
from ..shards import read_directory

KIND = "huggingface"
#: Values of --classes.
CLASSES = ("roberta", "tupe")
#: One row. A second token type would need an input that fairseq does not have.
TOKEN_TYPES = "roberta.embeddings.token_type_embeddings.weight"
WORDS_THERE = "roberta.embeddings.word_embeddings.weight"
TIED_HEAD, TIED_BIAS = "lm_head.decoder.weight", "lm_head.decoder.bias"
#: Settings of the same meaning: name in transformers, name in fairseq.
SAME_SETTINGS = {
    "num_hidden_layers": "encoder_layers",
    "hidden_size": "encoder_embed_dim",
    "intermediate_size": "encoder_ffn_embed_dim",
    "num_attention_heads": "encoder_attention_heads",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "classifier_dropout": "pooler_dropout",
}
#: Activations with the same name and function in both; gelu is exact.
ACTIVATIONS = ("gelu", "relu", "tanh", "linear")
#: Settings of `tupe_roberta` that are fixed in RoBERTa of transformers.
FIXED = {
    "position_encoding": "learned",
    "layernorm_embedding": True,
    "encoder_normalize_before": False,
    "attention_window": None,
}
#: Settings of transformers that are fixed in `tupe_roberta`: the value, and their default.
FIXED_THERE = {
    "hidden_act": ("gelu", "gelu"),
    "layer_norm_eps": (1e-5, 1e-12),
    "pad_token_id": (1, 1),
    "is_decoder": (False, False),
    "position_embedding_type": ("absolute", "absolute"),
}


def table(head: str | None = None) -> Table:
    """Rules for the names of transformers.

    Args:
        head: the classification head that becomes `classifier`.
    """
    layer, ours = "roberta.encoder.layer.*.", f"{ENCODER}layers.*."
    classifier = f"classification_heads.{head}.*.*"
    return (
        Rule(WORDS_THERE, WORDS),
        Rule("roberta.embeddings.position_embeddings.weight", POSITIONS),
        Rule("roberta.embeddings.LayerNorm.*", f"{ENCODER}layernorm_embedding.*"),
        Rule(f"{layer}attention.self.query.*", f"{ours}self_attn.q_proj.*"),
        Rule(f"{layer}attention.self.key.*", f"{ours}self_attn.k_proj.*"),
        Rule(f"{layer}attention.self.value.*", f"{ours}self_attn.v_proj.*"),
        Rule(f"{layer}attention.output.dense.*", f"{ours}self_attn.out_proj.*"),
        Rule(f"{layer}attention.output.LayerNorm.*", f"{ours}self_attn_layer_norm.*"),
        Rule(f"{layer}intermediate.dense.*", f"{ours}fc1.*"),
        Rule(f"{layer}output.dense.*", f"{ours}fc2.*"),
        Rule(f"{layer}output.LayerNorm.*", f"{ours}final_layer_norm.*"),
        Rule("lm_head.dense.*", "encoder.lm_head.dense.*"),
        Rule("lm_head.layer_norm.*", "encoder.lm_head.layer_norm.*"),
        Rule(TIED_HEAD, "encoder.lm_head.weight"),
        Rule("lm_head.bias", "encoder.lm_head.bias"),
        *((Rule("classifier.*.*", classifier),) if head else ()),
    )


def write(
    converted: Converted,
    out: Path,
    head: str | None = None,
    classes: str | None = None,
    lower_case: str | None = None,
) -> None:
    """Write a directory of transformers' RoBERTa or of the classes with their own code.

    Args:
        converted: the model.
        out: the directory; must not exist.
        head: write this classification head instead of the head for masked words.
        classes: "roberta", "tupe" or None for the default of the encoding.
        lower_case: "yes" if the tokenizer is to lower-case texts.

    Raises:
        UsageError: there is no counterpart of the model.
    """
    if classes not in (None, *CLASSES):
        raise ConfigurationError(
            f"--classes is {classes!r}, but must be one of: {', '.join(CLASSES)}."
        )
    if lower_case not in (None, "yes", "no"):
        raise ConfigurationError(f"--lower-case is {lower_case!r}, but must be yes or no.")
    masked = converted.family is MASKED
    if classes == "roberta" and not masked:
        raise ConfigurationError(
            f"--classes is 'roberta', but the model is a {converted.family.what}: use tupe."
        )
    learned = masked and converted.settings["position_encoding"] == "learned"
    if (classes or ("roberta" if learned else "tupe")) == "tupe":
        tupe_classes.write(converted, out, head, lower_case == "yes")
    else:
        write_roberta(converted, out, head)


def write_roberta(converted: Converted, out: Path, head: str | None = None) -> None:
    """Write a directory that `RobertaForMaskedLM.from_pretrained` loads.

    Args:
        converted: the model.
        out: the directory; must not exist.
        head: write this classification head, for `RobertaForSequenceClassification`, instead of
            the head for masked words.

    Raises:
        UsageError: RoBERTa of transformers has no counterpart of the model.
    """
    settings = converted.settings
    _check_counterpart(converted, head)
    theirs = to_theirs(converted.state, table(head))
    if head:
        theirs = {n: value for n, value in theirs.items() if not n.startswith("lm_head.")}
    elif settings.get("untie_weights_roberta"):
        theirs[TIED_BIAS] = theirs["lm_head.bias"]
    else:
        del theirs[TIED_HEAD]
    theirs[TOKEN_TYPES] = torch.zeros(1, settings["encoder_embed_dim"])
    with building(out) as folder:
        write_config(folder / "config.json", _config(converted, theirs, head))
        (folder / "dict.txt").write_text(dictionary_text(converted.entries), encoding="utf-8")
        write_tensors(folder / "model.safetensors", theirs)


def _check_counterpart(converted: Converted, head: str | None) -> None:
    """Refuse settings without a counterpart, and parameters that do not fit the settings."""
    settings = converted.settings
    for name, value in FIXED.items():
        if settings.get(name) != value:
            raise CheckpointError(
                f"transformers' RoBERTa supports {name} {value!r} only, but the model's is "
                f"{settings.get(name)!r} (leave out --classes roberta, or use --classes tupe)."
            )
    allowed = {"activation_fn": ACTIVATIONS, "pooler_activation_fn": ("tanh",)}
    # Its head for masked words always uses gelu.
    for name, functions_there in (allowed if head else {"activation_fn": ("gelu",)}).items():
        if settings[name] not in functions_there:
            raise CheckpointError(
                f"transformers' RoBERTa supports {name} {', '.join(functions_there)} only, but "
                f"the model's is {settings[name]!r}."
            )
    state = converted.state
    check_head(state, head)
    own = build(_settings(settings, state, "the model"), converted.entries, state)
    check_fit(state, own.state_dict(), "the model", "tupe_roberta")


def _config(
    converted: Converted, theirs: Mapping[str, Tensor], head: str | None
) -> dict[str, Any]:
    settings = converted.settings
    classes = {"num_labels": len(theirs["classifier.out_proj.weight"])} if head else {}
    return {
        "architectures": ["RobertaForSequenceClassification" if head else "RobertaForMaskedLM"],
        "model_type": "roberta",
        "vocab_size": len(converted.state[WORDS]),
        "max_position_embeddings": len(converted.state[POSITIONS]),
        **{there: settings[here] for there, here in SAME_SETTINGS.items()},
        "hidden_act": settings["activation_fn"],
        "layer_norm_eps": 1e-5,
        "type_vocab_size": 1,
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "tie_word_embeddings": not settings.get("untie_weights_roberta"),
        **classes,
    }


def read(source: str | Path, dictionary: str | Path | None = None) -> Converted:
    """Read a directory that `RobertaForMaskedLM` or one of our classes (or `write`) wrote.

    Args:
        source: the directory.
        dictionary: dict.txt in the order of its ids; default: the one in the directory.

    Raises:
        UsageError: it is not such a directory, or its contents do not fit.
    """
    folder = Path(source)
    if read_config(folder / "config.json").get("model_type") == tupe_classes.MODEL_TYPE:
        return tupe_classes.read(source, dictionary)
    config = _read_config(folder / "config.json")
    theirs, words, entries = read_directory(folder, dictionary, WORDS_THERE)
    types = theirs.pop(TOKEN_TYPES, None)
    if types is not None:
        # Every token has type 0, so that its row can be added to the words.
        theirs[WORDS_THERE] = words + types[:1]
    theirs.pop("roberta.embeddings.position_ids", None)
    theirs.pop(TIED_BIAS, None)
    theirs.setdefault(TIED_HEAD, words)
    recorded = {here: config.get(there) for there, here in SAME_SETTINGS.items()}
    # If it is null, transformers uses hidden_dropout_prob.
    recorded["pooler_dropout"] = recorded["pooler_dropout"] or recorded["dropout"]
    settings = _settings(recorded, to_ours(theirs, table()), source)
    return renamed(theirs, table(), settings, entries, source, KIND)


def _settings(
    recorded: Mapping[str, Any], ours: Mapping[str, Tensor], source: object
) -> dict[str, Any]:
    """Arguments of `tupe_roberta`, from the parameters where these show them."""
    positions = ours.get(POSITIONS)
    if positions is None or positions.dim() != 2:
        raise CheckpointError(f"{source} is not a {KIND} RoBERTa: it has no table of positions.")
    return {
        **sizes(recorded, ours, ENCODER, source),
        **functions(recorded, source),
        **FIXED,
        "max_positions": len(positions) - 2,
        "untie_weights_roberta": not torch.equal(ours["encoder.lm_head.weight"], ours[WORDS]),
    }


def _read_config(path: Path) -> dict[str, Any]:
    """Read config.json and refuse settings that have no counterpart."""
    config = read_config(path)
    if (kind := config.get("model_type")) != "roberta":
        raise CheckpointError(
            f"{path} is not a configuration of RoBERTa: its model_type is {kind!r}."
        )
    for name, (here, default) in FIXED_THERE.items():
        if (found := config.get(name, default)) != here:
            raise CheckpointError(f"unsupported {name} in {path}: {found!r}; it must be {here!r}.")
    return config


def outputs(directory: Path, converted: Converted, head: str | None) -> Forward:
    """The model of transformers as loaded from the directory.

    Raises:
        UsageError: `transformers` is not installed.
    """
    library = import_extra("transformers", "hf")
    if read_config(Path(directory, "config.json")).get("model_type") == tupe_classes.MODEL_TYPE:
        return tupe_classes.outputs(directory, converted, head)
    kind = library.RobertaForSequenceClassification if head else library.RobertaForMaskedLM
    model = kind.from_pretrained(str(directory)).eval()

    def forward(tokens: Tensor) -> tuple[Tensor, ...]:
        out = model(tokens, attention_mask=tokens.ne(1), output_hidden_states=True)
        return (out.logits,) if head else (out.hidden_states[-1], out.logits)

    return forward


SUMMARY = "transformers: RoBERTa for `learned`, a model with its own code for other encodings"
HEAD = Option("head", "the classification head to write")
CHOICE = Option("classes", "roberta (default for `learned`) or tupe, which has its own code")
BOTH = (MASKED, CAUSAL)
register(Conversion("--from", KIND, SUMMARY, read, outputs, extra="hf", families=BOTH))
LOWER = Option("lower_case", "yes: the tokenizer lower-cases texts, as the training data were")
OPTIONS = (HEAD, CHOICE, LOWER)
register(Conversion("--to", KIND, SUMMARY, write, outputs, OPTIONS, extra="hf", families=BOTH))
