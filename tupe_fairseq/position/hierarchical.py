"""Hierarchical decomposition of absolute positions (Su 2020): a table of n rows reaches n².

q_{(i−1)·n+j} = α u_i + (1−α) u_j with u = (p − α p_1)/(1−α) and α = 0.4, positions counted from 1.
The first n vectors are p itself, so a trained table is extended without a change.
"""

from typing import Annotated

import torch
from torch import Tensor

from ..base.errors import ConfigurationError
from .base import PositionEncoding, Shape, check_at_least, register_position_encoding
from .dtypes import widened
from .initial import random_vectors

ALPHA = 0.4


def decompose(table: Tensor, positions: Tensor) -> Tensor:
    """The vectors of N positions below n², counted from 0: N×C, from those of the first n, n×C."""
    u = (table - ALPHA * table[0]) / (1 - ALPHA)
    n = len(table)
    return ALPHA * u[positions // n] + (1 - ALPHA) * u[positions % n]


def extend(encoding: PositionEncoding, state_dict: dict[str, Tensor], prefix: str) -> None:
    """Extend the position tables of a state dict to the encoding's max_positions, in place.

    Args:
        encoding: the encoding that will load the state dict.
        state_dict: trained with fewer positions, or as many.
        prefix: of the encoding's names in the state dict.

    Raises:
        ConfigurationError: more positions than the decomposition reaches.
    """
    for name, first in encoding.position_tables().items():
        trained = state_dict.get(prefix + name)
        total = len(encoding.get_parameter(name))
        if trained is None or len(trained) >= total:
            continue
        table = trained[first:]
        positions = total - first
        if positions > len(table) ** 2:
            raise _out_of_reach(encoding.shape.max_positions, len(table))
        wide = table.to(widened(table.dtype))
        extended = decompose(wide, torch.arange(len(table), positions)).to(table.dtype)
        state_dict[prefix + name] = torch.cat((trained, extended))


def _out_of_reach(max_positions: int, rows: int) -> ConfigurationError:
    return ConfigurationError(
        f"--max-positions is {max_positions}, but hierarchical decomposition of {rows} positions "
        f"reaches {rows**2}."
    )


@register_position_encoding("hierarchical")
class HierarchicalPosition(PositionEncoding):
    """x + q_k at the input, from a learned table of --hierarchical-rows rows."""

    def __init__(
        self,
        shape: Shape,
        *,
        hierarchical_rows: Annotated[int, "rows n of the table, which reaches n²"] = 512,
    ):
        super().__init__(shape)
        check_at_least("--hierarchical-rows", hierarchical_rows, 1)
        if shape.max_positions > hierarchical_rows**2:
            raise _out_of_reach(shape.max_positions, hierarchical_rows)
        self.weight = random_vectors(hierarchical_rows, shape.embed_dim)

    def embed(
        self, x: Tensor, tokens: object = None, padding_mask: object = None, start: int = 0
    ) -> Tensor:
        positions = torch.arange(start, start + x.size(1), device=x.device)
        return x + decompose(self.weight, positions)
