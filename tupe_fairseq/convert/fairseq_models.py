"""Models of fairseq: their names of parameters, and how they are built."""

import copy
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from fairseq import options, tasks
from fairseq.data import Dictionary
from fairseq.models.roberta import RobertaModel
from torch import Tensor

from ..base.errors import CheckpointError
from ..fairseq.arguments.roberta import ROBERTA
from ..fairseq.checkpoints.mismatch import differences
from ..fairseq.checkpoints.reading import read_checkpoint
from .keys import Rule, Table, to_ours
from .models import ENCODER, Converted, building_model

#: Begins the names of embeddings, positions and layers.
STACK = "encoder.sentence_encoder."
EMBEDDINGS = f"{STACK}embed_tokens.weight"
OUTPUT = "encoder.lm_head.weight"
#: Marks state dicts in which the names of the LayerNorms are today's.
VERSION = f"{STACK}version"
#: Task and criterion of its training.
TASK = "masked_lm"
#: The setting with the longest sequence in tokens.
LONGEST = "max_positions"
CLASSIFIERS = "classification_heads."
#: BERT's pooler is the first layer of this head, whose second one is the identity.
POOLER = "pooler"
#: Parts with the same names in both.
PARTS = (
    "embed_positions",
    "embed_token_types",
    "layernorm_embedding",
    "quant_noise",
    "layers",
    "layer_norm",
)
#: Names of parameters in fairseq, and those of `Converted`.
RULES: Table = (
    Rule(VERSION, ""),
    Rule(EMBEDDINGS, "tupe.embed_tokens.weight"),
    *(Rule(f"{STACK}{part}.**", f"{ENCODER}{part}.**") for part in PARTS),
    Rule(OUTPUT, "lm_head.decoder.weight"),
    Rule("encoder.lm_head.bias", "lm_head.decoder.bias"),
    Rule("encoder.lm_head.**", "lm_head.**"),
    Rule(f"{CLASSIFIERS}{POOLER}.dense.*", "pooler.dense.*"),
    Rule(f"{CLASSIFIERS}{POOLER}.out_proj.*", ""),
    Rule(f"{CLASSIFIERS}**", "heads.**"),
)


def read_state(checkpoint: str | Path) -> dict[str, Any]:
    """The entries of a fairseq checkpoint.

    Parameters are copied, because training may overwrite the file.

    Raises:
        UsageError: it cannot be read or has other contents.
    """
    state = read_checkpoint(checkpoint)
    model = state["model"]
    if not isinstance(model, dict) or not all(isinstance(v, Tensor) for v in model.values()):
        raise CheckpointError(
            f"{checkpoint} is not a fairseq checkpoint: its model is not a state dict."
        )
    # One call, so that a tensor with several names is copied once.
    return state | {"model": copy.deepcopy(model)}


def check_kind(state: Mapping[str, Tensor], source: object) -> None:
    """Whether these are parameters of a masked language model.

    Raises:
        CheckpointError: they are those of another model.
    """
    sides = {name.partition(".")[0] for name in state} & {"encoder", "decoder"}
    if len(sides) == 2:
        raise CheckpointError(f"{source} is a translation model, which cannot be converted.")
    if sides == {"decoder"}:
        raise CheckpointError(
            f"{source} is a language model, which cannot be converted. The last version that "
            "converts those of this package is tupe_fairseq 0.3.0."
        )


def from_fairseq(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters of fairseq's model by the names of `Converted`."""
    return to_ours(state, RULES)


def to_fairseq(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters by the names of fairseq's model."""
    named = to_ours(state, tuple(Rule(rule.ours, rule.theirs) for rule in RULES))
    weight = named.get(f"{CLASSIFIERS}{POOLER}.dense.weight")
    if weight is not None:
        named[f"{CLASSIFIERS}{POOLER}.out_proj.weight"] = torch.eye(len(weight))
        named[f"{CLASSIFIERS}{POOLER}.out_proj.bias"] = torch.zeros(len(weight))
    return named


def all_arguments(settings: dict[str, Any]) -> Namespace:
    """All of fairseq's arguments for a model with these settings."""
    flags = ["", "--task", TASK, "--criterion", TASK, "--optimizer", "adam"]
    flags += ["--arch", ROBERTA.name]
    arguments = options.parse_args_and_arch(options.get_training_parser(), flags)
    vars(arguments).update({"tokens_per_sample": settings[LONGEST], **settings})
    return arguments


def register_heads(model: RobertaModel, state: Mapping[str, Tensor]) -> None:
    """Register the classification heads of a state dict with a model, as fairseq does."""
    model.args.load_checkpoint_heads = True
    # A copy, which it changes. It reads `version` too, and drops the last norm without it.
    model.upgrade_state_dict(dict(state))


def build(
    settings: dict[str, Any], dictionary: Dictionary, state: Mapping[str, Tensor]
) -> RobertaModel:
    """A model with these settings and the heads of `state`, initialised, in eval mode.

    Raises:
        UsageError: a setting is invalid, or there is not enough memory.
    """
    arguments = all_arguments(settings)
    # The task may add a symbol.
    task = tasks.TASK_REGISTRY[TASK](arguments, copy.deepcopy(dictionary))
    with building_model(f"{LONGEST} {settings[LONGEST]}"):
        model = task.build_model(arguments).eval()
        register_heads(model, state)
    return model


def completed(
    converted: Converted,
    state: dict[str, Tensor],
    settings: dict[str, Any],
    dictionary: Dictionary,
) -> dict[str, Tensor]:
    """The parameters of fairseq's model, after a comparison with what fairseq builds.

    A model without a language modeling head gets a new one.

    Raises:
        CheckpointError: names or shapes of parameters differ, or the factor of the embeddings.
    """
    model = build(settings, dictionary, state)
    source = converted.source
    expected = model.state_dict()
    factor = model.get_submodule(STACK[:-1]).embed_scale
    scale = converted.settings.get("embedding_scale")
    if scale is not None and (type(scale) not in (int, float) or abs(scale / factor - 1) > 1e-6):
        raise CheckpointError(
            f"invalid embedding_scale in {source}: {scale!r}; fairseq's model multiplies "
            f"embeddings by {factor}."
        )
    new = {VERSION: expected[VERSION]}
    if not converted.has_lm_head:
        new |= {n: value for n, value in expected.items() if n.startswith("encoder.lm_head.")}
        new[OUTPUT] = state[EMBEDDINGS]
    complete = new | state
    if problems := differences(complete, expected):
        raise CheckpointError(f"{source} does not fit its settings; parameters: {problems}.")
    return complete
