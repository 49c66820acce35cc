"""Models of `tupe_fairseq.huggingface`: every encoding, encoders and language models."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import CheckpointError
from ...modules.activations import ACTIVATIONS
from ..families import CAUSAL, Family
from ..keys import Rule, Table
from ..models import LM_HEAD, REACH, Converted, exported, known_settings, options_of
from ..settings import checked
from .base import Architecture, Written


class Tupe(Architecture):
    """The classes of `tupe_fairseq.huggingface`."""

    model_type = "tupe"
    embed_tokens = "tupe.embed_tokens.weight"
    matrices = (embed_tokens,)

    def rules(self, family: Family, head: str | None) -> Table:
        parts = ("embed_positions", "layernorm_embedding", "layers", "layer_norm")
        stack = (
            Rule(self.embed_tokens, family.embeddings),
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
            Rule("classifier.*.*", f"classification_heads.{head}.*.*"),
        )

    def write(self, converted: Converted, head: str | None) -> Written:
        state, settings, family = converted.state, converted.settings, converted.family
        if settings["activation_fn"] not in ACTIVATIONS:
            raise CheckpointError(
                f"the classes for transformers support activation_fn {', '.join(ACTIVATIONS)} "
                f"only, but the model's is {settings['activation_fn']!r}."
            )
        theirs, model = exported(converted, self.rules(family, head), head)
        known = known_settings(settings, family)
        config = {
            "model_type": self.model_type,
            **_task(converted, head),
            "vocab_size": len(state[family.embeddings]),
            **{there: settings[here] for there, here in family.settings.items()},
            **{name: known.get(name, default) for name, default in REACH.items()},
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


def settings_of(
    config: Mapping[str, Any], ours: Mapping[str, Tensor], folder: Path, family: Family
) -> dict[str, Any]:
    """Arguments of a model, from a configuration with the names of `TupeConfig`.

    What the parameters `ours` show is taken from them.

    Raises:
        CheckpointError: a setting is missing or invalid.
    """
    names, path = family.settings, folder / "config.json"
    if lacking := [name for name in names if name not in config]:
        raise CheckpointError(f"{path} lacks {', '.join(lacking)}.")
    recorded = {here: config[there] for there, here in names.items()}
    recorded |= {name: config.get(name, default) for name, default in REACH.items()}
    if family is CAUSAL:
        recorded["no_scale_embedding"] = config.get("embedding_scale") == 1
        recorded["add_bos_token"] = config.get("bos_token_id") == 0
    elif recorded["pooler_dropout"] is None:
        # The other dropout is used there.
        recorded["pooler_dropout"] = recorded["dropout"]
    options = config.get("position_options") or {}
    if not isinstance(options, dict) or options.keys() - options_of(recorded):
        raise CheckpointError(f"invalid position_options in {path}: {json.dumps(options)}.")
    tied = torch.equal(ours[family.output], ours[family.embeddings])
    return {
        **recorded,
        **options,
        **checked(recorded, ours, folder, family),
        **family.tying(tied),
    }
