"""RoBERTa of transformers: config.json, model.safetensors and dict.txt.

RoBERTa here and there count positions from padding_idx + 1 = 2 and have the same layers.
`transformers` also has a table of token types, which is zero in what is written here. Ids are
those of dict.txt, which is copied.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import CheckpointError
from .dictionaries import Entry, check_size, dictionary_text
from .directory import ENCODER, POSITIONS, WORDS, Converted, build, building, check_head, renamed
from .keys import HEAD, Rule, Table, to_ours, to_theirs
from .model_files import check_fit, write_config, write_tensors
from .settings import functions, sizes
from .tokenizer_json import add_tokenizer
from .warm_start import warm_start

KIND = "huggingface"
WORDS_THERE = "roberta.embeddings.word_embeddings.weight"
POSITIONS_THERE = "roberta.embeddings.position_embeddings.weight"
#: One row. A second token type would need an input that fairseq does not have.
TOKEN_TYPES = "roberta.embeddings.token_type_embeddings.weight"
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
        Rule(POSITIONS_THERE, POSITIONS),
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
    converted: Converted, out: Path, head: str | None = None, lower_case: bool = False
) -> None:
    """Write a directory that `RobertaForMaskedLM.from_pretrained` loads.

    Args:
        converted: the model.
        out: the directory; must not exist.
        head: write this classification head, for `RobertaForSequenceClassification`, instead of
            the head for masked words.
        lower_case: the tokenizer lower-cases texts.

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
        add_tokenizer(converted, folder, settings["max_positions"], lower_case)


def _check_counterpart(converted: Converted, head: str | None) -> None:
    """Check that all settings have a counterpart, and that the parameters fit them."""
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


def read(
    source: Path,
    config: Mapping[str, Any],
    theirs: dict[str, Tensor],
    entries: list[Entry],
    position_encoding: str = "learned",
    seed: int = 1,
) -> Converted:
    """Read the parameters of RoBERTa with a head for masked words, a classifier or neither.

    Args:
        source: the directory, for messages.
        config: its config.json, which `check_config` has checked.
        theirs: its parameters by RoBERTa's names; entries are removed.
        entries: the dictionary.
        position_encoding: of the new model; any other than `learned` is a warm start.
        seed: of new parameters.

    Raises:
        CheckpointError: the contents do not fit.
    """
    _check_tables(theirs, entries, source)
    notes = _fold_token_types(theirs, position_encoding == "learned")
    head = HEAD if "classifier.out_proj.weight" in theirs else None
    if head:
        notes.append(f"the classifier is the head {HEAD}")
    else:
        notes += _left_out(theirs, "roberta.pooler.")
    for name in ("roberta.embeddings.position_ids", TIED_BIAS):
        theirs.pop(name, None)
    theirs.setdefault(TIED_HEAD, theirs[WORDS_THERE])
    settings = _settings(_recorded(config), to_ours(theirs, table()), source)
    new_head = "lm_head.dense.weight" not in theirs
    if new_head:
        notes.append("the source has no head for masked words: the new one is untrained")
        own = to_theirs(build(settings, entries, {}).state_dict(), table())
        theirs |= {n: v for n, v in own.items() if n.startswith("lm_head.") and n != TIED_HEAD}
    converted = renamed(theirs, table(head), settings, entries, source, KIND)
    if position_encoding != "learned":
        converted = warm_start(converted, position_encoding, seed)
    elif new_head and not head:
        converted.not_comparable = "the source has no head"
    converted.notes = [*notes, *converted.notes]
    converted.head = head if new_head else None
    return converted


def _check_tables(theirs: Mapping[str, Tensor], entries: list[Entry], source: Path) -> None:
    """Check that tables fit the dictionary and each other."""
    check_size(entries, len(matrix(theirs, WORDS_THERE, source)), source / "dict.txt")
    tables = (WORDS_THERE, POSITIONS_THERE, *({TOKEN_TYPES} & theirs.keys()))
    if len({matrix(theirs, name, source).size(1) for name in tables}) > 1:
        raise CheckpointError(f"{source}: words, positions and token types differ in their width.")


def _recorded(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of config.json by fairseq's names; None where it lacks one."""
    found = {here: config.get(there) for there, here in SAME_SETTINGS.items()}
    if found["pooler_dropout"] is None:
        # transformers then uses hidden_dropout_prob.
        found["pooler_dropout"] = found["dropout"]
    return found


def matrix(theirs: Mapping[str, Tensor], name: str, source: Path) -> Tensor:
    """The parameter of this name, which must be a matrix.

    Raises:
        CheckpointError: it is missing or has another number of dimensions.
    """
    found = theirs.get(name)
    if found is None or found.dim() != 2:
        raise CheckpointError(f"{source} is not a {KIND} checkpoint: it has no matrix {name}.")
    return found


def _fold_token_types(theirs: dict[str, Tensor], learned: bool) -> list[str]:
    """Add type 0, which every token has, to the positions, or to the words of a warm start.

    In the output layer that is tied to the words, it adds the same number to all logits.
    """
    types = theirs.pop(TOKEN_TYPES, None)
    if types is None or not types.any():
        return []
    target, words = POSITIONS_THERE if learned else WORDS_THERE, theirs[WORDS_THERE]
    if not learned and torch.equal(theirs.get(TIED_HEAD, words), words):
        theirs.pop(TIED_HEAD, None)
    theirs[target] = theirs[target] + types[:1]
    more = f"; left out: {len(types) - 1} other" if len(types) > 1 else ""
    return [f"token type 0 is added to the {'positions' if learned else 'words'}{more}"]


def _left_out(theirs: dict[str, Tensor], prefix: str) -> list[str]:
    """Remove the parameters of a part that has no counterpart; a note if there are any."""
    names = [name for name in theirs if name.startswith(prefix)]
    for name in names:
        del theirs[name]
    return [f"left out: {prefix}*"] if names else []


def check_config(config: Mapping[str, Any], path: Path, free: tuple[str, ...] = ()) -> None:
    """Check that all settings have a counterpart.

    Args:
        config: what the file holds.
        path: of config.json, for the message.
        free: settings that may differ.

    Raises:
        CheckpointError: one has another value than `tupe_roberta`'s.
    """
    for name, (here, default) in FIXED_THERE.items():
        if name not in free and (found := config.get(name, default)) != here:
            raise CheckpointError(f"unsupported {name} in {path}: {found!r}; it must be {here!r}.")


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
