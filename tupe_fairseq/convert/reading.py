"""Parameters of a directory of transformers by the names of `Converted`.

They are compared with those of the class that transformers builds from config.json: what this
class ignores is left out, and what it would initialise at random is an error.
"""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..base.errors import CheckpointError
from .architectures import Architecture
from .classes import library
from .keys import Table, split_projections, to_ours
from .models import (
    ANSWERS,
    EMBED_TOKENS,
    HEAD,
    HEADS,
    LM_HEAD,
    ONE_HEAD,
    OUTPUT,
    POOLER,
    POSITIONS,
    SENTENCES,
    TOKEN_HEADS,
    TOKEN_TYPES,
    TOKENS,
    building_model,
)
from .saved import read_parameters

#: Begin the names of layers that give classes.
CLASSIFIERS = ("classifier.", "qa_outputs.")
CHOICES = "MultipleChoice"
CLASSIFYING = (SENTENCES, TOKENS, ANSWERS, CHOICES)
#: Begin the names of a model without a head, which lack the prefix.
BARE = ("embeddings.", "encoder.", "layers.", "final_norm.", "pooler.", "embed_tokens.")
LAYER = re.compile(r"\.layers?\.(\d+)\.")
#: Constants that older files have, and `Converted` has not.
CONSTANTS = ("embeddings.position_ids",)


def state_of(
    folder: Path, config: Any, architecture: Architecture
) -> tuple[dict[str, Tensor], list[str]]:
    """The parameters of a directory by the names of `Converted`, and notes for the user.

    `config` gets the settings that only the parameters show.

    Raises:
        UsageError: a file is damaged; a parameter is missing, or has another size than config.json
            says.
    """
    saved = read_parameters(folder)
    notes: list[str] = []
    prefix = architecture.prefix or architecture.model_type
    theirs = _with_prefix(saved.tensors, prefix)
    theirs = _first_layers(theirs, config, saved.path, notes)
    config.update(architecture.shown(theirs))
    task = _task(theirs, config, architecture)
    expected = _expected(config, task, prefix)
    _compare(theirs, expected, saved.path, task)
    notes += [f"left out: {name}" for name in _patterns(theirs.keys() - expected.keys())]
    theirs = {name: value for name, value in theirs.items() if name in expected}
    state = to_ours(theirs, _rules(architecture, task))
    _complete(state, architecture)
    return _with_named_head(state, task, notes), notes


def _first_layers(
    theirs: dict[str, Tensor], config: Any, path: Path, notes: list[str]
) -> dict[str, Tensor]:
    """The parameters with as many layers as config.json says.

    Raises:
        CheckpointError: there are fewer.
    """
    matches = {name: LAYER.search(name) for name in theirs}
    numbers = {name: int(match[1]) for name, match in matches.items() if match}
    count = 1 + max(numbers.values(), default=-1)
    wanted = config.num_hidden_layers
    if type(wanted) is not int or count < wanted:
        raise CheckpointError(
            f"{path} has {count} layers, but config.json beside it has num_hidden_layers "
            f"{wanted!r}."
        )
    if count > wanted:
        last = f" to {count - 1}" if count - 1 > wanted else ""
        notes.append(
            f"left out: layer {wanted}{last} of {path.name}, since config.json has "
            f"num_hidden_layers {wanted}"
        )
    return {name: value for name, value in theirs.items() if numbers.get(name, -1) < wanted}


def _task(theirs: dict[str, Tensor], config: Any, architecture: Architecture) -> str:
    """What the head in a file does, as transformers names it; "" where there is none.

    config.json names the class that was saved. Some files have another one, or none.
    """
    named = str(next(iter(config.architectures or []), "")).partition("For")[2]
    ours = to_ours(theirs, architecture.rules)
    if any(name.startswith(CLASSIFIERS) for name in theirs):
        if named in CLASSIFYING:
            return named
        if any(name.startswith("qa_outputs.") for name in theirs):
            return ANSWERS
        heads = {f"{ONE_HEAD}dense.weight", f"{LM_HEAD}dense.weight"}
        return SENTENCES if heads & ours.keys() else TOKENS
    return "MaskedLM" if f"{LM_HEAD}dense.weight" in ours else ""


def _expected(config: Any, task: str, prefix: str) -> dict[str, Tensor]:
    """Parameters without values of the class for a task, and of a pooler that it would ignore."""
    names = ["", task] if task not in CLASSIFYING else [task]
    state: dict[str, Tensor] = {}
    for name in dict.fromkeys(names):
        auto = getattr(library(), f"AutoModelFor{name}" if name else "AutoModel")
        longest = f"max_position_embeddings {getattr(config, 'max_position_embeddings', None)!r}"
        with torch.device("meta"), building_model(longest):
            built = auto.from_config(config).state_dict(keep_vars=True)
        state |= _with_prefix(built, prefix)
    return state


def _with_prefix(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {f"{prefix}.{n}" if n.startswith(BARE) else n: value for n, value in state.items()}


def _compare(
    theirs: dict[str, Tensor], expected: dict[str, Tensor], path: Path, task: str
) -> None:
    """Whether a file has all that a class has, in the same sizes.

    Raises:
        CheckpointError: it has not.
    """
    for name, value in theirs.items():
        if name in expected and value.shape != expected[name].shape:
            raise CheckpointError(
                f"{name} in {path} has the shape {tuple(value.shape)}, but "
                f"{tuple(expected[name].shape)} by config.json beside it."
            )
    # One tensor may have several names, of which a file has one.
    found = {id(value) for name, value in expected.items() if name in theirs}
    missing = [n for n, value in expected.items() if n not in theirs and id(value) not in found]
    if task not in CLASSIFYING and not any(POOLER in name for name in theirs):
        missing = [name for name in missing if POOLER not in name]
    if missing:
        raise CheckpointError(
            f"{path} lacks {', '.join(_patterns(missing))}, which config.json beside it asks for "
            f"({len(missing)} of {len(expected)} parameters)."
        )


def _patterns(names: Collection[str]) -> list[str]:
    """Parameters of the same kind in one, such as `layer.*.output.dense.*`; at most four."""
    stems = (name.rpartition(".")[0] for name in sorted(names) if not name.endswith(CONSTANTS))
    kinds = dict.fromkeys(re.sub(r"\.\d+(?=\.|$)", ".*", stem) for stem in stems)
    told = ["the pooler" if kind.endswith("pooler.dense") else f"{kind}.*" for kind in kinds]
    return [*told[:3], f"{len(told) - 3} more"] if len(told) > 4 else told


def _rules(architecture: Architecture, task: str) -> Table:
    """ModernBERT's heads for masked tokens and for classes have the same names."""
    if task not in CLASSIFYING:
        return architecture.rules
    return tuple(sorted(architecture.rules, key=lambda rule: not rule.ours.startswith(ONE_HEAD)))


def _complete(state: dict[str, Tensor], architecture: Architecture) -> None:
    """Add what models there leave out, and the rows of tables that differ, in place."""
    split_projections(state)
    tokens = state[EMBED_TOKENS]
    if f"{LM_HEAD}dense.weight" in state:
        # A tied output layer is not saved.
        state.setdefault(OUTPUT, tokens)
    for name in architecture.biases:
        weight = state.get(name.replace(".bias", ".weight"))
        if weight is not None:
            state.setdefault(name, weight.new_zeros(len(weight)))
    if architecture.first_position is not None:
        # BERT counts positions from 0, RoBERTa from 2.
        table = state[POSITIONS]
        unused = table.new_zeros(2 - architecture.first_position, table.size(1))
        state[POSITIONS] = torch.cat((unused, table))
    if architecture.types == 1:
        types = state.pop(TOKEN_TYPES, torch.zeros(1))
        if types.any():
            # Type 0, which all of RoBERTa's tokens have.
            state[TOKEN_TYPES] = types[:1]


def _with_named_head(state: dict[str, Tensor], task: str, notes: list[str]) -> dict[str, Tensor]:
    """The parameters with the head, if there is one, by the name for its task; else a pooler."""
    prefix = POOLER
    if task in CLASSIFYING:
        head = TOKEN_HEADS.get(task, HEAD)
        if task == CHOICES and f"{ONE_HEAD}dense.weight" not in state:
            head = TOKEN_HEADS[TOKENS]
        notes.append(f"the classifier is the head {head}")
        if task == CHOICES:
            notes.append("the head for multiple choice becomes one score of each text")
        prefix = f"{HEADS}{head}."
    return {
        prefix + name.removeprefix(ONE_HEAD) if name.startswith(ONE_HEAD) else name: value
        for name, value in state.items()
    }
