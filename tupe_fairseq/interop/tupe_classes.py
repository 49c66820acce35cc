"""Models of `tupe_fairseq.huggingface`: names of parameters, and configurations."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import CheckpointError
from ..modules.activations import ACTIVATIONS
from .dictionaries import Entry
from .families import CAUSAL, MASKED, Family
from .keys import Rule, Table, to_ours
from .models import (
    LM_HEAD,
    WINDOW,
    Converted,
    exported,
    known_settings,
    options_of,
    renamed,
)
from .settings import functions, sizes

MODEL_TYPE = "tupe"
EMBED_TOKENS = "tupe.embed_tokens.weight"


def table(family: Family = MASKED, head: str | None = None) -> Table:
    """Rules for the names of parameters."""
    parts = ("embed_positions", "layernorm_embedding", "layers", "layer_norm")
    stack = (
        Rule(EMBED_TOKENS, family.embeddings),
        *(Rule(f"tupe.encoder.{name}.**", f"{family.stack}{name}.**") for name in parts),
    )
    if family is CAUSAL:
        return (*stack, Rule("lm_head.weight", family.output))
    return (
        *stack,
        Rule("lm_head.dense.*", f"{LM_HEAD}dense.*"),
        Rule("lm_head.layer_norm.*", f"{LM_HEAD}layer_norm.*"),
        Rule("lm_head.decoder.weight", family.output),
        Rule("lm_head.decoder.bias", f"{LM_HEAD}bias"),
        *((Rule("classifier.*.*", f"classification_heads.{head}.*.*"),) if head else ()),
    )


def parts(converted: Converted, head: str | None) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Configuration and parameters for the classes.

    `head` is written for TupeForSequenceClassification, in place of the other head.

    Raises:
        UsageError: the classes have no counterpart of the model.
    """
    state, settings, family = converted.state, converted.settings, converted.family
    if settings["activation_fn"] not in ACTIVATIONS:
        raise CheckpointError(
            f"the classes for transformers support activation_fn {', '.join(ACTIVATIONS)} only, "
            f"but the model's is {settings['activation_fn']!r}."
        )
    theirs, model = exported(converted, table(family, head), head)
    known = known_settings(settings, family)
    config = {
        "model_type": MODEL_TYPE,
        **_task(converted, head),
        "vocab_size": len(state[family.embeddings]),
        **{there: settings[here] for there, here in family.settings.items()},
        **{name: known.get(name, default) for name, default in WINDOW.items()},
        "position_options": {n: known[n] for n in sorted(options_of(settings)) if n in known},
        "embedding_scale": model.get_submodule(family.stack[:-1]).embed_scale,
        "tie_word_embeddings": family.is_tied(settings),
        "bos_token_id": 2 if family.start(settings) == "</s>" else 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
    }
    return config, theirs


def _task(converted: Converted, head: str | None) -> dict[str, Any]:
    """Settings of the model's class."""
    if converted.family is CAUSAL:
        return {"architectures": ["TupeForCausalLM"], "is_decoder": True}
    if not head:
        return {"architectures": ["TupeForMaskedLM"]}
    labels = len(converted.state[f"classification_heads.{head}.out_proj.weight"])
    return {
        "architectures": ["TupeForSequenceClassification"],
        "id2label": {str(i): f"LABEL_{i}" for i in range(labels)},
        "label2id": {f"LABEL_{i}": i for i in range(labels)},
        "problem_type": "regression" if labels == 1 else "single_label_classification",
    }


def read(
    config: Mapping[str, Any],
    theirs: dict[str, Tensor],
    rules: Table,
    entries: list[Entry],
    source: Path,
    family: Family = MASKED,
) -> Converted:
    """Read a masked language model, a sentence classifier or a language model.

    The output layer is added to `theirs` where it is tied to the embeddings.

    Raises:
        CheckpointError: the contents do not fit.
    """
    embed_tokens, output = (
        next(rule.theirs for rule in rules if rule.ours == name)
        for name in (family.embeddings, family.output)
    )
    theirs.setdefault(output, theirs[embed_tokens])
    ours = to_ours(theirs, rules)
    tied = torch.equal(ours[family.output], ours[family.embeddings])
    settings = _settings(config, ours, source, family) | family.tying(tied)
    scale = config.get("embedding_scale")
    return renamed(theirs, rules, settings, entries, source, "huggingface", family, scale)


def _settings(
    config: Mapping[str, Any], ours: Mapping[str, Tensor], source: Path, family: Family
) -> dict[str, Any]:
    """Arguments of the model, from the parameters where these show them."""
    names, path = family.settings, source / "config.json"
    if lacking := [name for name in names if name not in config]:
        raise CheckpointError(f"{path} lacks {', '.join(lacking)}.")
    recorded = {here: config[there] for there, here in names.items()}
    recorded |= {name: config.get(name, default) for name, default in WINDOW.items()}
    if family is CAUSAL:
        recorded["no_scale_embedding"] = config.get("embedding_scale") == 1
        recorded["add_bos_token"] = config.get("bos_token_id") == 0
    elif recorded["pooler_dropout"] is None:
        # The other dropout is used there.
        recorded["pooler_dropout"] = recorded["dropout"]
    options = config.get("position_options") or {}
    if not isinstance(options, dict) or options.keys() - options_of(recorded):
        raise CheckpointError(f"invalid position_options in {path}: {json.dumps(options)}.")
    found = sizes(recorded, ours, source, family)
    return recorded | options | found | functions(recorded, source)
