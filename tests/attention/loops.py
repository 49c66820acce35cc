"""What the loops of tests/reference give: outputs, weights and every gradient, in float64."""

import functools
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
from tests.reference import (
    alibi,
    cable,
    cope,
    dape,
    deberta,
    fire,
    fox,
    kerple,
    learned,
    none,
    pope,
    relative_bank,
    rope,
    sandwich,
    shaw,
    t5,
    toeplitz,
    transformer_xl,
    tupe,
    urpe,
    xpos,
)

REFERENCES = {
    "none": none.attend,
    "learned": learned.attend,
    "t5": t5.attend,
    "tupe_a": tupe.attend,
    "tupe_r": tupe.attend,
    "rope": rope.attend,
    "shaw": shaw.attend,
    "transformer_xl": transformer_xl.attend,
    "deberta": deberta.attend,
    "alibi": alibi.attend,
    "fire": fire.attend,
    "kerple_log": kerple.attend_log,
    "kerple_power": kerple.attend_power,
    "sandwich": sandwich.attend,
    "fox": fox.attend,
    "urpe": urpe.attend,
    "pope": pope.attend,
    "relative_bank": relative_bank.attend,
    "cable": cable.attend,
    "cope": cope.attend,
    "dape": dape.attend,
    "xpos": xpos.attend,
    "toeplitz": toeplitz.attend,
}
DTYPES = (torch.float64, torch.float32, torch.bfloat16)
#: Length, and padding at the end of each of two sentences.
SENTENCES = ((1, None), (2, None), (2, (0, 1)), (7, None), (7, (3, 0)))


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
