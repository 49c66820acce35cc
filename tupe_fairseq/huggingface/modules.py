"""What is known of the modules of an encoder, which may be the user's."""

import functools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import activation
from transformers.activations import GELUActivation

from ..kernels.linear import PackedLinear
from ..kernels.quantized import QuantizedLinear, gelu_in_c

#: Where classes are from that compute each token alone, apart from attention.
OWN = ("transformers.", "tupe_fairseq.", "peft.", "torch.ao.nn.quantized.")
#: Classes of torch that do, besides activations.
BY_TOKEN = {
    nn.Dropout,
    nn.Embedding,
    nn.Identity,
    nn.LayerNorm,
    nn.Linear,
    nn.ModuleDict,
    nn.ModuleList,
    nn.ParameterDict,
    nn.Sequential,
}
#: Numbers of which torch computes whole vectors on all processors, and the least that it gives to
#: a thread.
LANES = 64
SHARE = 1 << 15
#: Linear layers whose output nothing else reads, if they have no hooks.
PLAIN = (nn.Linear, PackedLinear, QuantizedLinear)


def rate_of(dropout: Any) -> float:
    """The probability with which a dropout drops now; nn.Identity has none."""
    return getattr(dropout, "p", 0.0) if dropout.training else 0.0


def drops_plainly(dropout: Any) -> bool:
    """Whether nothing but `rate_of` tells what a dropout does."""
    return type(dropout) in (nn.Dropout, nn.Identity) and not changed(dropout)


def is_read(linear: Any, following: Any) -> bool:
    """Whether anything but the module that follows may read what a linear layer returns.

    If not, it can be changed in place: allocating a tensor of this size takes as long as gelu.
    """
    return (
        torch.is_grad_enabled()
        or type(linear) not in PLAIN
        or bool(linear._forward_hooks or following._forward_hooks or following._forward_pre_hooks)
    )


def rounds_alone(linear: Any, following: Any) -> bool:
    """Whether what follows a linear layer must not round by the other rows, as in int8."""
    is_quantized = type(linear) is QuantizedLinear and not torch.is_grad_enabled()
    return is_quantized and not linear._forward_hooks and by_token(following)


def row_by_row(act: Any, x: Tensor) -> Tensor:
    """An activation in place, whose rounding does not depend on other rows: ...×C.

    torch computes vectors of numbers, and one by one what is left at the end of a thread's share,
    which rounds otherwise. So rows are whole vectors here, and a share is whole rows.
    """
    width = x.size(-1)
    rows = x.flatten(0, -2)
    if is_gelu(act) and gelu_in_c(rows):
        return rows.view(x.shape)
    if width % LANES:
        rows = F.pad(rows, (0, -width % LANES))
    threads = torch.get_num_threads()
    # Rows of which each thread gets the same number, and pieces that one thread computes.
    shared = len(rows)
    if threads > 1:
        shared -= shared % (threads * -(-SHARE // rows.size(1)))
    for piece in (rows[:shared], *rows[shared:].split(max(SHARE // rows.size(1), 1))):
        if is_gelu(act):
            torch.ops.aten.gelu_(piece)
        else:
            piece.copy_(act(piece))
    return rows[:, :width].view(x.shape)


def is_gelu(act: Any) -> bool:
    """Whether a module of transformers computes the exact gelu."""
    return type(act) is GELUActivation and act.act is F.gelu


def by_token(module: nn.Module) -> bool:
    """Whether all parts of a module compute each token alone, apart from attention."""
    kinds: Any = map(type, module.modules())
    return all(map(_is_by_token, kinds)) and not any(map(changed, module.modules()))


@functools.cache
def _is_by_token(kind: Any) -> bool:
    if kind.__module__ == activation.__name__:
        return kind is not nn.MultiheadAttention
    return kind in BY_TOKEN or kind.__module__.startswith(OWN)


def changed(module: nn.Module) -> bool:
    """Whether a user has changed what calling a module does."""
    if "forward" in module.__dict__ or module._backward_hooks or module._backward_pre_hooks:
        return True
    # transformers 5 collects outputs by hooks of its own.
    hooks = (*module._forward_pre_hooks.values(), *module._forward_hooks.values())
    return not all(str(getattr(each, "__module__", "")).startswith(OWN) for each in hooks)
