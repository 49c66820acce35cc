"""What the loops of tests/reference give: outputs, weights and every gradient, in float64."""

import functools
import importlib
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from tests.attention.cases import (
    EMBED_DIM,
    ENCODINGS,
    NUM_HEADS,
    build,
    gradients,
    normal,
    padding_mask,
)
from tupe_fairseq.position import POSITION_ENCODINGS


def references(function: str) -> dict[str, Callable]:
    """For encodings of position/NAME.py, `function` of reference/NAME.py, or `function_LAST`."""
    found = {}
    for name, cls in POSITION_ENCODINGS.items():
        file = cls.__module__.rpartition(".")[2]
        loops = vars(importlib.import_module(f"tests.reference.{file}"))
        last = name.rpartition("_")[2]
        if loop := loops.get(f"{function}_{last}", loops.get(function)):
            found[name] = loop
    return found


#: Others enter the input: test_input_encodings.py.
REFERENCES = references("attend")
DTYPES = (torch.float64, torch.float32, torch.bfloat16)
#: Length, and padding at the end of each of two sentences.
SENTENCES = ((1, None), (2, (0, 1)), (7, None), (7, (3, 0)))


class Expected(NamedTuple):
    output: Tensor
    weights: Tensor
    gradients: dict[str, Tensor]


def inputs(length, padded, dtype=torch.float64):
    x = normal(2, length, EMBED_DIM, seed=length, dtype=dtype).requires_grad_()
    return x, None if padded is None else padding_mask(length, *padded)


@functools.cache
def expected_of(case, length, padded, dtype):
    """The reference in float64, at the parameters and words that dtype holds."""
    encoding, attention = (module.double() for module in build(case, 7, dtype))
    name, options = ENCODINGS[case]
    x, padding = inputs(length, padded, dtype)
    x = x.detach().double().requires_grad_()
    output, weights = REFERENCES[name](
        x,
        dict(attention.named_parameters()),
        dict(encoding.named_parameters()),
        NUM_HEADS,
        padding,
        **options,
    )
    return Expected(output.detach(), weights, gradients(output, x, encoding, attention))
