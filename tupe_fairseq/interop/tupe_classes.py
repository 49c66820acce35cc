"""Directories of `tupe_fairseq.huggingface`, which transformers loads without this package.

config.json, model.safetensors, dict.txt, and the code of the model (`sources.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import CheckpointError
from ..extras import import_extra
from ..modules.activations import ACTIVATIONS
from ..position import POSITION_ENCODINGS
from ..standalone.files import check_fit, read_config, write_config, write_tensors
from .conversion import Forward
from .dictionaries import check_size, dictionary_text, read_dictionary
from .directory import (
    ENCODER,
    VERSION,
    WORDS,
    Converted,
    build,
    building,
    check_head,
    head_names,
)
from .keys import Rule, Table, to_ours, to_theirs
from .settings import functions, sizes
from .shards import read_shards
from .sources import AUTO_MAP, collect
from .tokenizer_json import write_tokenizer

MODEL_TYPE = "tupe"
#: The name of a classification head that was trained in transformers; fairseq's default.
HEAD = "sentence_classification_head"
#: Settings of the same meaning: name in transformers, name in fairseq.
SAME_SETTINGS = {
    "num_hidden_layers": "encoder_layers",
    "hidden_size": "encoder_embed_dim",
    "intermediate_size": "encoder_ffn_embed_dim",
    "num_attention_heads": "encoder_attention_heads",
    "hidden_act": "activation_fn",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "activation_dropout": "activation_dropout",
    "max_position_embeddings": "max_positions",
    "position_encoding": "position_encoding",
    "layernorm_embedding": "layernorm_embedding",
    "normalize_before": "encoder_normalize_before",
    "classifier_dropout": "pooler_dropout",
    "classifier_act": "pooler_activation_fn",
}
#: Settings of the same name in both, and what they are where a configuration lacks them.
WINDOW = {"attention_window": None, "global_every": 0}
#: Deepest name of a parameter below the encoder, in parts.
DEEPEST = 8


def table(head: str | None = None) -> Table:
    """Rules for the names of parameters.

    Args:
        head: the classification head that is `classifier` there.
    """
    stars = [".*" * count for count in range(1, DEEPEST)]
    return (
        Rule("tupe.embed_tokens.weight", WORDS),
        *(
            Rule(f"tupe.encoder.{name}{more}", f"{ENCODER}{name}{more}")
            for name in ("embed_positions", "layernorm_embedding", "layers", "layer_norm")
            for more in stars
        ),
        Rule("lm_head.dense.*", "encoder.lm_head.dense.*"),
        Rule("lm_head.layer_norm.*", "encoder.lm_head.layer_norm.*"),
        Rule("lm_head.decoder.weight", "encoder.lm_head.weight"),
        Rule("lm_head.decoder.bias", "encoder.lm_head.bias"),
        *((Rule("classifier.*.*", f"classification_heads.{head}.*.*"),) if head else ()),
    )


def write(
    converted: Converted, out: Path, head: str | None = None, lower_case: bool = False
) -> None:
    """Write a directory that AutoModelForMaskedLM.from_pretrained loads with trust_remote_code.

    Args:
        converted: the model.
        out: the directory; must not exist.
        head: write this classification head, for AutoModelForSequenceClassification, instead of
            the head for masked words.
        lower_case: the tokenizer lower-cases texts, as the training data were.

    Raises:
        UsageError: the classes for transformers have no counterpart of the model.
    """
    state, settings = converted.state, converted.settings
    check_head(state, head)
    if settings["activation_fn"] not in ACTIVATIONS:
        raise CheckpointError(
            f"the classes for transformers support activation_fn {', '.join(ACTIVATIONS)} only, "
            f"but the model's is {settings['activation_fn']!r}."
        )
    own = build(_model_settings(settings), converted.entries, state)
    check_fit(state, own.state_dict(), "the model", "tupe_roberta")
    theirs = to_theirs(state, table(head))
    if head:
        theirs = {n: value for n, value in theirs.items() if not n.startswith("lm_head.")}
    elif not settings.get("untie_weights_roberta"):
        del theirs["lm_head.decoder.weight"]
    left_out = [name for name in head_names(state) if name != head]
    if left_out:
        converted.notes.append(f"left out, classification heads: {', '.join(left_out)}")
    files = collect(settings["position_encoding"], _model_settings(settings))
    scale = own.encoder.sentence_encoder.embed_scale
    with building(out) as folder:
        write_config(folder / "config.json", _config(converted, scale, head))
        (folder / "dict.txt").write_text(dictionary_text(converted.entries), encoding="utf-8")
        write_tensors(folder / "model.safetensors", theirs)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        if converted.folder is not None:
            longest = settings["max_positions"]
            given = (folder, converted.folder, converted.entries, longest, lower_case)
            converted.notes += [note for note in (write_tokenizer(*given),) if note]


def _model_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that the classes for transformers have."""
    options = POSITION_ENCODINGS[settings["position_encoding"]].options()
    names = (*SAME_SETTINGS.values(), *WINDOW, *(o.name for o in options), "untie_weights_roberta")
    return {name: settings[name] for name in names if settings.get(name) is not None}


def _config(converted: Converted, scale: float, head: str | None) -> dict[str, Any]:
    settings, state = converted.settings, converted.state
    known = _model_settings(settings)
    given = known.keys() - {*SAME_SETTINGS.values(), *WINDOW, "untie_weights_roberta"}
    task: dict[str, Any] = {"architectures": ["TupeForMaskedLM"]}
    if head:
        labels = len(state[f"classification_heads.{head}.out_proj.weight"])
        kind = "regression" if labels == 1 else "single_label_classification"
        task = {
            "architectures": ["TupeForSequenceClassification"],
            "id2label": {str(i): f"LABEL_{i}" for i in range(labels)},
            "label2id": {f"LABEL_{i}": i for i in range(labels)},
            "problem_type": kind,
        }
    return {
        "model_type": MODEL_TYPE,
        "auto_map": AUTO_MAP,
        **task,
        "vocab_size": len(state[WORDS]),
        **{there: settings[here] for there, here in SAME_SETTINGS.items()},
        **{name: known.get(name, default) for name, default in WINDOW.items()},
        "position_options": {name: known[name] for name in sorted(given)},
        "embedding_scale": scale,
        "tie_word_embeddings": not settings.get("untie_weights_roberta"),
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
    }


def read(source: str | Path, dictionary: str | Path | None = None) -> Converted:
    """Read a directory that `TupeForMaskedLM` or `TupeForSequenceClassification` wrote.

    Args:
        source: the directory.
        dictionary: dict.txt in the order of its ids; default: the one in the directory.

    Raises:
        UsageError: it is not such a directory, or its contents do not fit.
    """
    folder = Path(source)
    config = read_config(folder / "config.json")
    theirs = read_shards(folder)
    words = theirs.get("tupe.embed_tokens.weight")
    if words is None or words.dim() != 2:
        raise CheckpointError(f"{source} has no token embeddings (tupe.embed_tokens.weight).")
    path = Path(dictionary or folder / "dict.txt")
    entries = read_dictionary(path)
    check_size(entries, len(words), path)
    if config.get("is_decoder"):
        raise CheckpointError(f"{source} is a language model, which --from does not read.")
    notes: list[str] = []
    ours = to_ours(theirs, table(HEAD))
    classifier = "classifier.out_proj.weight" in theirs
    if classifier:
        notes.append(f"the classifier is the head {HEAD}")
    settings = _settings(config, ours, folder)
    if "lm_head.dense.weight" in theirs:
        ours.setdefault("encoder.lm_head.weight", words)
    settings["untie_weights_roberta"] = not torch.equal(
        ours.get("encoder.lm_head.weight", words), words
    )
    try:
        own = build(settings, entries, ours).state_dict()
    except RuntimeError as error:
        raise CheckpointError(
            f"{folder / 'config.json'} does not fit its parameters: max_position_embeddings "
            f"{settings['max_positions']} or an option needs too much memory."
        ) from error
    if "lm_head.dense.weight" not in theirs:
        notes.append("the head for masked words is new, since the source has none")
        ours |= {n: v for n, v in own.items() if n.startswith("encoder.lm_head.")}
        ours["encoder.lm_head.weight"] = words
    unknown = {n: v for n, v in theirs.items() if not to_ours({n: v}, table(HEAD))}
    check_fit(ours | unknown | {VERSION: own[VERSION]}, own, source, "huggingface")
    head = HEAD if classifier and "lm_head.dense.weight" not in theirs else None
    return Converted(settings, ours | {VERSION: own[VERSION]}, entries, notes, head=head)


def _settings(
    config: Mapping[str, Any], ours: Mapping[str, Tensor], source: Path
) -> dict[str, Any]:
    """Arguments of `tupe_roberta`, from the parameters where these show them."""
    lacking = [name for name in SAME_SETTINGS if name not in config]
    if lacking:
        raise CheckpointError(f"{source / 'config.json'} lacks {', '.join(lacking)}.")
    recorded = {here: config[there] for there, here in SAME_SETTINGS.items()}
    recorded |= {name: config.get(name, default) for name, default in WINDOW.items()}
    if wrong := [name for name in WINDOW if type(recorded[name]) not in (int, type(WINDOW[name]))]:
        raise CheckpointError(
            f"invalid {wrong[0]} in {source / 'config.json'}: {recorded[wrong[0]]!r}."
        )
    # If it is null, the other dropout is used there.
    if recorded["pooler_dropout"] is None:
        recorded["pooler_dropout"] = recorded["dropout"]
    options = config.get("position_options") or {}
    known = {option.name for option in POSITION_ENCODINGS[recorded["position_encoding"]].options()}
    if not isinstance(options, dict) or options.keys() - known:
        raise CheckpointError(
            f"invalid position_options in {source / 'config.json'}: {json.dumps(options)}."
        )
    return (
        recorded | options | sizes(recorded, ours, ENCODER, source) | functions(recorded, source)
    )


def outputs(directory: Path, converted: Converted, head: str | None) -> Forward:
    """The model as transformers loads it from the directory.

    Raises:
        UsageError: `transformers` is not installed.
    """
    import_extra("transformers", "hf")
    from .. import huggingface

    kind = huggingface.TupeForSequenceClassification if head else huggingface.TupeForMaskedLM
    model = kind.from_pretrained(str(directory)).eval()

    def forward(tokens: Tensor) -> tuple[Tensor, ...]:
        out = model(tokens, output_hidden_states=True)
        return (out.logits,) if head else (out.hidden_states[-1], out.logits)

    return forward
