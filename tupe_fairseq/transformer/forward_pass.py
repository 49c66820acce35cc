"""What a forward pass over a stack of layers reads and returns."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from ..attention import Layout, Prepared, Source

Observer = Callable[[Tensor, Prepared], tuple[Tensor, Prepared]]


@dataclass(frozen=True)
class Pass:
    """What a forward pass reads besides the vectors, and what is wanted of it.

    Attributes:
        tokens: ids, B×T, for encodings that depend on the token.
        types: of the tokens, B×T; by default all have type 0.
        source: what the layers attend to, in the decoder of a translation model; its sequences
            are those of the vectors.
        causal: False: a causal stack does not hide later tokens in this pass.
        backend: used in place of that of the layers.
        read: the M tokens that are read after the last layer, by their indices b·T + t among the
            B·T cells of the batch; by default all.
        keep_states: also return the first layer's input and each layer's output.
        observe: called before each layer with its input and what it shares with others; returns
            what the layer is called with.
        aligned: the layer whose attention to the source is returned, or None.
    """

    tokens: Tensor | None = None
    types: Tensor | None = None
    source: Source | None = None
    causal: bool = True
    backend: str | None = None
    read: Tensor | None = None
    keep_states: bool = False
    observe: Observer | None = None
    aligned: int | None = None


class Batch(NamedTuple):
    """The input of the first layer.

    Attributes:
        x: B×T×C, or N×C where padding has been taken out.
        layout: the tokens of the batch.
        prepared: what each layer shares with others.
    """

    x: Tensor
    layout: Layout
    prepared: list[Prepared]


class Encoded(NamedTuple):
    """The output of a stack of layers.

    Attributes:
        x: B×T×C, or M×C of the tokens that are read.
        states: the first layer's input and each layer's output, B×T×C, where asked for.
        weights: of one layer's attention to the source, B×H×T×S, where asked for.
    """

    x: Tensor
    states: list[Tensor]
    weights: Tensor | None = None


#: A pass over vectors alone.
PLAIN = Pass()
