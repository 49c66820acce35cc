"""Models of fairseq: their names of parameters, and how they are built."""

import copy
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

import torch
from fairseq import options, tasks
from fairseq.data import Dictionary
from fairseq.models import BaseFairseqModel
from fairseq.models.roberta import RobertaModel
from torch import Tensor

from ..checkpoints.mismatch import differences
from ..errors import CheckpointError
from .families import MASKED, Family
from .keys import Rule, Table, to_ours
from .models import ENCODER, Converted, building_model

CLASSIFIERS = "classification_heads."
#: BERT's pooler is the first layer of this head, whose second one is the identity.
POOLER = "pooler"


def rules(family: Family) -> Table:
    """Names of parameters in fairseq, and those of `Converted`."""
    parts = (
        *("embed_positions", "embed_token_types", "layernorm_embedding", "quant_noise"),
        *("layers", "layer_norm"),
    )
    output = (Rule(family.output, "lm_head.weight"),)
    head = (
        Rule("encoder.lm_head.weight", "lm_head.decoder.weight"),
        Rule("encoder.lm_head.bias", "lm_head.decoder.bias"),
        Rule("encoder.lm_head.**", "lm_head.**"),
        Rule(f"{CLASSIFIERS}{POOLER}.dense.*", "pooler.dense.*"),
        Rule(f"{CLASSIFIERS}{POOLER}.out_proj.*", ""),
        Rule(f"{CLASSIFIERS}**", "heads.**"),
    )
    return (
        Rule(family.version, ""),
        Rule(family.embeddings, "tupe.embed_tokens.weight"),
        *(Rule(f"{family.stack}{part}.**", f"{ENCODER}{part}.**") for part in parts),
        *(output if family.causal else head),
    )


def from_fairseq(state: Mapping[str, Tensor], family: Family) -> dict[str, Tensor]:
    """Parameters of fairseq's model by the names of `Converted`."""
    return to_ours(state, rules(family))


def to_fairseq(state: Mapping[str, Tensor], family: Family) -> dict[str, Tensor]:
    """Parameters by the names of fairseq's model."""
    turned = tuple(Rule(rule.ours, rule.theirs) for rule in rules(family))
    named = to_ours(state, turned)
    if (weight := named.get(f"{CLASSIFIERS}{POOLER}.dense.weight")) is not None:
        named[f"{CLASSIFIERS}{POOLER}.out_proj.weight"] = torch.eye(len(weight))
        named[f"{CLASSIFIERS}{POOLER}.out_proj.bias"] = torch.zeros(len(weight))
    return named


def all_arguments(settings: dict[str, Any], family: Family = MASKED) -> Namespace:
    """All of fairseq's arguments for a model with these settings."""
    flags = ["", "--task", family.task, "--criterion", family.criterion, "--optimizer", "adam"]
    flags += ["--arch", family.arguments.name]
    arguments = options.parse_args_and_arch(options.get_training_parser(), flags)
    vars(arguments).update(family.complete(settings))
    return arguments


def register_heads(model: RobertaModel, state: Mapping[str, Tensor]) -> None:
    """Register the classification heads of a state dict with a model, as fairseq does."""
    model.args.load_checkpoint_heads = True
    # A copy, which it changes. It reads `version` too, and drops the last norm without it.
    model.upgrade_state_dict(dict(state))


def build(
    settings: dict[str, Any],
    dictionary: Dictionary,
    state: Mapping[str, Tensor],
    family: Family = MASKED,
) -> BaseFairseqModel:
    """A model with these settings and the heads of `state`, initialised, in eval mode.

    Raises:
        UsageError: a setting is invalid, or there is not enough memory.
    """
    arguments = all_arguments(settings, family)
    # The task may add a symbol.
    task = tasks.TASK_REGISTRY[family.task](arguments, copy.deepcopy(dictionary))
    with building_model(f"{family.longest} {settings[family.longest]}"):
        model = task.build_model(arguments).eval()
        if not family.causal:
            register_heads(model, state)
    return model


def completed(
    converted: Converted,
    state: dict[str, Tensor],
    settings: dict[str, Any],
    dictionary: Dictionary,
    family: Family,
) -> dict[str, Tensor]:
    """The parameters of fairseq's model, after a comparison with what fairseq builds.

    A masked language model without a language modeling head gets a new one.

    Raises:
        CheckpointError: names or shapes of parameters differ, or the factor of the embeddings.
    """
    model, source = build(settings, dictionary, state, family), converted.source
    expected, factor = model.state_dict(), model.get_submodule(family.stack[:-1]).embed_scale
    scale = converted.settings.get("embedding_scale")
    if scale is not None and (type(scale) not in (int, float) or abs(scale / factor - 1) > 1e-6):
        raise CheckpointError(
            f"invalid embedding_scale in {source}: {scale!r}; fairseq's model multiplies "
            f"embeddings by {factor}."
        )
    new = {family.version: expected[family.version]}
    if not converted.has_lm_head:
        new |= {n: value for n, value in expected.items() if n.startswith("encoder.lm_head.")}
        new[family.output] = state[family.embeddings]
    if problems := differences(state := new | state, expected):
        raise CheckpointError(f"{source} does not fit its settings; parameters: {problems}.")
    return state
