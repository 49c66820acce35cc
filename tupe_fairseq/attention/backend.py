"""Interface of attention backends, and the features that a layer can require of them.

A backend is a file of this folder with one subclass of `Backend`, of which it registers an object
in `ATTENTION_BACKENDS`; `__init__.py` imports the file, and `AUTO` in `plan.py` names it if
`auto` may choose it. It works in two steps: `prepare` once per forward pass for layers that share
a bias, `attend` in each layer.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from ..base.registry import Registry
from ..position import PositionEncoding
from ..position.bias import AttentionBias
from ..position.relative import RelativeVectors
from .blocks import Blocks
from .layout import Layout

ATTENTION_BACKENDS = Registry("--attention-backend", special=("auto",))


class Feature(Enum):
    """What a layer can require; the value is the reason given by a backend that lacks it."""

    RELATIVE = "it cannot add products with vectors by distance, which depend on content"
    RELATIVE_VALUES = "it cannot add vectors by distance to the values"
    DISTANCE = "it cannot add a bias that depends on the distance"
    DECODER = "it cannot mask later tokens in a decoder"
    WINDOW = "it cannot restrict attention to a window"
    COMPILED = "torch.compile (--compile-layers) cannot trace it"


@dataclass(frozen=True)
class Inputs:
    """What a backend prepares for the layers that share it; each reads the parts that it sets.

    A backend that prepares something else returns a subclass.

    Attributes:
        bias: added to the scores, broadcastable to B×H×T×S.
        padding: B×1×1×S, added to the scores, or True at padding.
        queries: dimensions that are appended to the queries, 1×H×T×E.
        keys: dimensions that are appended to the keys, 1×H×S×E.
        blocks: how the cells are divided.
        by_keys: the bias with keys before queries, H×T×T, for gradients.
        sequences: row of the first cell of each sequence, and that after its last token, B each;
            None where all have T tokens.
        cumulative: packed tokens of the first 0, ..., B sequences, B + 1 in int32.
        scales: whether `attend` gets queries that are not scaled, and multiplies products with
            keys by the scale of `Prepared`.
    """

    bias: Tensor | None = None
    padding: Tensor | None = None
    queries: Tensor | None = None
    keys: Tensor | None = None
    blocks: Blocks | None = None
    by_keys: Tensor | None = None
    sequences: tuple[Tensor, Tensor] | None = None
    cumulative: Tensor | None = None
    scales: bool = False


@dataclass(frozen=True)
class Prepared:
    """What layers with the same bias and window share in one forward pass.

    Attributes:
        backend: computes attention.
        layout: the tokens of the batch.
        inputs: what the backend has prepared.
        encoding: as these layers see it; None in cross-attention.
        start: position of the first query.
        scale: factor of products of queries and keys, where the queries do not contain it.
        random: one layer's part of `Backend.random_numbers`, or None.
    """

    backend: "Backend"
    layout: Layout
    inputs: Inputs
    encoding: PositionEncoding | None = None
    start: int = 0
    scale: float = 1.0
    random: Tensor | None = None


class Backend:
    """Computes softmax(q kᵀ + positional terms) v, exactly."""

    name: str
    supports: frozenset[Feature] = frozenset()

    def unsupported(self, features: Collection[Feature]) -> str | None:
        """Why it does not support all of these features, or None."""
        return next((f.value for f in Feature if f in features and f not in self.supports), None)

    def unavailable(self, device: str) -> str | None:
        """Why it cannot run on this type of device, or None."""
        return None

    def takes_packed(self, has_bias: bool, width: int, dtype: torch.dtype, device: str) -> bool:
        """Whether `attend` takes packed tokens: q, k and v of 1×H×N×E in place of B×H×T×E.

        `prepare` then gets the layout `Layout.packed`, without a mask of padding.

        Args:
            has_bias: whether positions add anything to the scores.
            width: of queries, keys and values.
            dtype: of queries.
            device: its type.
        """
        return False

    def prepare(
        self, bias: AttentionBias | None, layout: Layout, heads: int, dtype: torch.dtype
    ) -> Inputs:
        """Prepare the inputs of `attend` that layers share, once per forward pass.

        Args:
            bias: what positions add to the scores, or None. Its `rows` and `dense` have the scores
                of hidden keys, in decoders and windows.
            layout: queries, keys and padding.
            heads: H.
            dtype: of the queries.

        Returns:
            What `attend` finds in `prepared.inputs`.
        """
        raise NotImplementedError

    def random_numbers(self, prepared: Prepared, layers: int) -> Tensor | None:
        """Random numbers for dropout in L layers, L×...; None where `attend` draws its own."""
        return None

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        prepared: Prepared,
        p: float,
        relative: RelativeVectors | None = None,
    ) -> Tensor:
        """Attend in one layer.

        A backend with the feature RELATIVE adds `relative.scores` to the scores, one with
        RELATIVE_VALUES also adds `relative.for_values` to the values.

        Args:
            q: queries scaled by 1/√D, B×H×T×E, or 1×H×N×E of packed tokens; if `Inputs.scales`,
                not scaled.
            k: keys, B×H×S×E.
            v: values, B×H×S×D.
            prepared: by this backend.
            p: probability of dropping an attention weight.
            relative: the layer's vectors by distance, or None.

        Returns:
            B×H×T×D, or 1×H×N×D.
        """
        raise NotImplementedError
