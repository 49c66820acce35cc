"""Positional terms kept between forward passes without gradients, for short inputs.

At 16 tokens, computing TUPE's term takes a tenth of an encoder's time. A kept term is used only
where the parameters that it depends on equal copies made with it, so no change can be missed,
however it was made.
"""

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from .score import PositionalScore

#: Lengths of which an encoding keeps its terms.
LENGTHS = 32
#: Longer inputs take much longer than their term, which also needs more memory then.
LONGEST = 128


class _Kept:
    """The terms of one encoding by number of queries and keys, and its parameters then."""

    def __init__(self, state: dict[str, Tensor]):
        self.state = {name: tensor.detach().clone() for name, tensor in state.items()}
        self.scores: dict[tuple[int, int], PositionalScore] = {}

    def is_current(self, state: dict[str, Tensor], rows: dict[str, int]) -> bool:
        """Whether all tensors are as they were; of tables, the rows that are read."""
        if state.keys() != self.state.keys():
            return False
        for name, new in state.items():
            old, read = self.state[name], rows.get(name)
            if old.dtype != new.dtype or not torch.equal(old[:read], new[:read]):
                return False
        return True


#: Not attributes of the encodings: copies and pickles of these hold no terms.
_kept: WeakKeyDictionary[nn.Module, _Kept] = WeakKeyDictionary()


def kept_score(
    encoding: Any, queries: int, keys: int, compute: Callable[[], PositionalScore]
) -> PositionalScore:
    """The term of an encoding that depends on its parameters and the length alone.

    Args:
        encoding: the encoding. It has no scalar parameters.
        queries: T.
        keys: S.
        compute: computes it.
    """
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or keys > LONGEST:
        return compute()
    state = dict(encoding.named_parameters())
    if torch.jit.is_tracing() or not _is_served(encoding, state):
        return compute()
    rows = {name: first + keys for name, first in encoding.position_tables().items()}
    kept = _kept.get(encoding)
    full = kept and len(kept.scores) >= LENGTHS and (queries, keys) not in kept.scores
    if kept is None or full or not kept.is_current(state, rows):
        kept = _kept[encoding] = _Kept(state)
    if (queries, keys) not in kept.scores:
        kept.scores[queries, keys] = compute()
    return kept.scores[queries, keys]


def _is_served(encoding: nn.Module, state: dict[str, Tensor]) -> bool:
    known = "torch.nn.modules.", type(encoding).__module__.rpartition(".")[0]
    return (
        not torch.is_autocast_enabled("cpu")
        and all(tensor.is_cpu and type(tensor) is nn.Parameter for tensor in state.values())
        and all(_is_plain(module, known) for module in encoding.modules())
    )


def _is_plain(module: nn.Module, known: tuple[str, ...]) -> bool:
    """Whether its parameters alone determine its outputs: an adapter can be switched off."""
    hooked = module._forward_hooks or module._forward_pre_hooks
    # A buffer that is not saved is a constant.
    constant = module._buffers.keys() == module._non_persistent_buffers_set
    return not hooked and constant and type(module).__module__.startswith(known)
