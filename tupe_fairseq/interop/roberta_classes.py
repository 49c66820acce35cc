"""RoBERTa of transformers, as a configuration of `tupe_fairseq.huggingface` with other names.

RoBERTa here and there count positions from padding_idx + 1 = 2 and have the same layers.
`transformers` also has a table of token types, which is zero in what is written here.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import CheckpointError
from .families import MASKED
from .keys import Rule, Table
from .models import EMBED_TOKENS, ENCODER, LM_HEAD, POSITIONS, Converted, exported

EMBED_TOKENS_THERE = "roberta.embeddings.word_embeddings.weight"
POSITIONS_THERE = "roberta.embeddings.position_embeddings.weight"
#: One row. A second token type would need an input that fairseq does not have.
TOKEN_TYPES = "roberta.embeddings.token_type_embeddings.weight"
TIED_HEAD, TIED_BIAS = "lm_head.decoder.weight", "lm_head.decoder.bias"
#: Settings of both configurations.
SHARED = (
    "num_hidden_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "classifier_dropout",
)
#: Settings that RoBERTa of transformers does not have, by their names in `TupeConfig`.
FIXED = {
    "position_encoding": "learned",
    "layernorm_embedding": True,
    "normalize_before": False,
    "attention_window": None,
}
#: Activations with the same name and function in both; gelu is exact.
ACTIVATIONS = ("gelu", "relu", "tanh", "linear")
#: Settings of transformers that are fixed here: the value, and their default.
FIXED_THERE = {
    "hidden_act": ("gelu", "gelu"),
    "layer_norm_eps": (1e-5, 1e-12),
    "pad_token_id": (1, 1),
    "is_decoder": (False, False),
    "position_embedding_type": ("absolute", "absolute"),
}


def table(head: str | None = None) -> Table:
    """Rules for the names of transformers."""
    layer, ours = "roberta.encoder.layer.*.", f"{ENCODER}layers.*."
    return (
        Rule(EMBED_TOKENS_THERE, EMBED_TOKENS),
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
        Rule("lm_head.dense.*", f"{LM_HEAD}dense.*"),
        Rule("lm_head.layer_norm.*", f"{LM_HEAD}layer_norm.*"),
        Rule(TIED_HEAD, f"{LM_HEAD}weight"),
        Rule("lm_head.bias", f"{LM_HEAD}bias"),
        *((Rule("classifier.*.*", f"classification_heads.{head}.*.*"),) if head else ()),
    )


def parts(converted: Converted, head: str | None) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Configuration and parameters for `RobertaForMaskedLM.from_pretrained`.

    `head` is written for `RobertaForSequenceClassification`, in place of the other head.

    Raises:
        UsageError: RoBERTa of transformers has no counterpart of the model.
    """
    settings, state = converted.settings, converted.state
    _check_counterpart(settings, head)
    theirs, _ = exported(converted, table(head), head)
    if TIED_HEAD in theirs:
        theirs[TIED_BIAS] = theirs["lm_head.bias"]
    theirs[TOKEN_TYPES] = torch.zeros(1, settings["encoder_embed_dim"])
    classes = {"num_labels": len(theirs["classifier.out_proj.weight"])} if head else {}
    config = {
        "architectures": ["RobertaForSequenceClassification" if head else "RobertaForMaskedLM"],
        "model_type": "roberta",
        "vocab_size": len(state[EMBED_TOKENS]),
        "max_position_embeddings": len(state[POSITIONS]),
        **{name: settings[MASKED.settings[name]] for name in SHARED},
        "layer_norm_eps": 1e-5,
        "type_vocab_size": 1,
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "tie_word_embeddings": MASKED.is_tied(settings),
        **classes,
    }
    return config, theirs


def _check_counterpart(settings: Mapping[str, Any], head: str | None) -> None:
    """Check that all settings have a counterpart."""
    for there, value in FIXED.items():
        name = MASKED.settings.get(there, there)
        if settings.get(name) != value:
            raise CheckpointError(
                f"transformers' RoBERTa supports {name} {value!r} only, but the model's is "
                f"{settings.get(name)!r} (leave out --classes roberta, or use --classes tupe)."
            )
    allowed = {"activation_fn": ACTIVATIONS, "pooler_activation_fn": ("tanh",)}
    # Its language modeling head always uses gelu.
    for name, functions in (allowed if head else {"activation_fn": ("gelu",)}).items():
        if settings[name] not in functions:
            raise CheckpointError(
                f"transformers' RoBERTa supports {name} {', '.join(functions)} only, but the "
                f"model's is {settings[name]!r}."
            )


def as_tupe(
    config: Mapping[str, Any], theirs: dict[str, Tensor], learned: bool, notes: list[str]
) -> dict[str, Any]:
    """The configuration as `TupeConfig` would have it, after `check_config`.

    Parameters that `tupe_roberta` does not have are removed from `theirs`. Notes for the user are
    added to `notes`. Positions are kept if they stay `learned`.
    """
    notes += _fold_token_types(theirs, learned)
    if "classifier.out_proj.weight" not in theirs:
        notes += left_out(theirs, "roberta.pooler.")
    for name in ("roberta.embeddings.position_ids", TIED_BIAS):
        theirs.pop(name, None)
    given = {"hidden_act": "gelu", "classifier_dropout": None, **config}
    only_here = {"activation_dropout": 0.0, "classifier_act": "tanh"}
    longest = {"max_position_embeddings": len(theirs[POSITIONS_THERE]) - 2}
    return given | FIXED | only_here | longest


def _fold_token_types(theirs: dict[str, Tensor], learned: bool) -> list[str]:
    """Add type 0, which every token has, to the positions, or to the embeddings of a warm start.

    In the output layer that is tied to the embeddings, it adds the same number to all logits.
    """
    types = theirs.pop(TOKEN_TYPES, None)
    if types is None or not types.any():
        return []
    target, tokens = POSITIONS_THERE if learned else EMBED_TOKENS_THERE, theirs[EMBED_TOKENS_THERE]
    if types.dim() != 2 or types.size(1) != theirs[target].size(1):
        raise CheckpointError(f"{TOKEN_TYPES} has another width than {target}.")
    if not learned and torch.equal(theirs.get(TIED_HEAD, tokens), tokens):
        theirs.pop(TIED_HEAD, None)
    theirs[target] = theirs[target] + types[:1]
    more = f"; left out: {len(types) - 1} other" if len(types) > 1 else ""
    return [f"token type 0 is added to the {'positions' if learned else 'tokens'}{more}"]


def left_out(theirs: dict[str, Tensor], prefix: str) -> list[str]:
    """Remove the parameters of a part that has no counterpart; a note if there are any."""
    names = [name for name in theirs if name.startswith(prefix)]
    for name in names:
        del theirs[name]
    return [f"left out: {prefix}*"] if names else []


def check_config(config: Mapping[str, Any], path: Path, free: tuple[str, ...] = ()) -> None:
    """Check that all settings have a counterpart.

    Raises:
        CheckpointError: one has another value than `tupe_roberta`'s.
    """
    for name, (here, default) in FIXED_THERE.items():
        if name not in free and (found := config.get(name, default)) != here:
            raise CheckpointError(f"unsupported {name} in {path}: {found!r}; it must be {here!r}.")
