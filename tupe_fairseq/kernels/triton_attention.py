"""Attention under a dense bias that the sequences of a batch share, by Triton kernels on GPUs.

softmax(scale · q kᵀ + B) v with dropout, for packed tokens, and its gradients. FlashAttention
(Dao 2023) has no bias; FlexAttention has no dropout, and sums the gradient of a bias by atomics.
Here the kernel for keys and values also stores the gradient of the scores. What remains is a
product with the keys and one sum over the batch. Heads go in chunks where these take more
than `triton_launch.STORED` bytes.

Without a GPU the kernels run in Triton's interpreter: set TRITON_INTERPRET=1 before the first
import of triton.
"""

import importlib.util
import os
from typing import Any

import torch
from torch import Tensor

from .first_derivatives import refuse_second

#: The widest vectors that the kernels take.
WIDEST = 128


@torch.compiler.assume_constant_result
def unavailable(device: str) -> str | None:
    """Why the kernels cannot run on this type of device, or None."""
    if device == "meta":
        # Nothing is computed there.
        return None
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    if device == "cuda":
        if not torch.cuda.is_available():
            return "there is no GPU"
        is_old = torch.cuda.get_device_capability() < (8, 0)
        return "the GPU has no compute capability 8.0" if is_old else None
    if device == "cpu" and os.environ.get("TRITON_INTERPRET") == "1":
        return None
    return f"its kernels do not run on {device!r}"


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    starts: Tensor,
    lengths: Tensor,
    longest: int,
    bias: Tensor | None = None,
    hidden: Tensor | None = None,
    scale: float = 1.0,
    dropout: float = 0.0,
    padded: bool = True,
    by_keys: Tensor | None = None,
) -> Tensor:
    """softmax(scale · q kᵀ + bias) v in each sequence and head.

    torch's generator of the device gives the random numbers of dropout. Under autocast, q, k and
    v are cast to its dtype. There are no second derivatives.

    Args:
        q: queries of packed tokens, N×H×D, in fp32, fp16 or bf16; D is at most `WIDEST`.
        k: keys, N×H×D.
        v: values, N×H×D.
        starts: row of the first token of each sequence, B.
        lengths: tokens of each sequence, B.
        longest: T, not below any of the lengths.
        bias: added to the scores, H×T×T, in any of these dtypes.
        hidden: added to the scores of each key, N, in fp32.
        scale: factor of the products.
        dropout: probability of dropping a weight.
        padded: whether a row may be of no sequence.
        by_keys: what `transposed` returned for the bias; None: the backward pass computes it.

    Returns:
        N×H×D; zeros in rows of no sequence.

    Raises:
        BackendError: a gradient is differentiated again.
    """
    if dropout >= 1:
        return v * 0.0
    device = q.device.type
    # torch.compile of torch 2.6 cannot trace `is_autocast_available`.
    if device != "meta" and torch.is_autocast_enabled(device):
        q, k, v = (x.to(torch.get_autocast_dtype(device)) for x in (q, k, v))
    q, k, v = (_rowwise(x) for x in (q, k, v))
    if bias is not None and bias.stride(-1) != 1:
        bias = bias.contiguous()
    random = None
    if dropout:
        shape = (2, q.size(1), q.size(0))
        random = torch.randint(-(1 << 31), 1 << 31, shape, dtype=torch.int32, device=q.device)
    where = starts, lengths, longest
    tensors = q, k, v, bias, by_keys, hidden, random
    return _attention(*tensors, *where, scale, dropout, padded)[0]


def transposed(bias: Tensor) -> Tensor:
    """Keys before queries, H×T×T, without a gradient; rows begin at aligned addresses."""
    heads, length, _ = bias.shape
    aligned = bias.new_empty(heads, length, -(-length // 16) * 16)[..., :length]
    return aligned.copy_(bias.detach().mT)


def _rowwise(x: Tensor) -> Tensor:
    """The heads of a row side by side, at any distance from row to row."""
    return x if x.stride()[1:] == (x.size(2), 1) else x.contiguous()


@torch.library.custom_op("tupe_fairseq::attention", mutates_args=())
def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    by_keys: Tensor | None,
    hidden: Tensor | None,
    random: Tensor | None,
    starts: Tensor,
    lengths: Tensor,
    longest: int,
    scale: float,
    dropout: float,
    padded: bool,
) -> tuple[Tensor, Tensor]:
    """The output, and the logsumexp of the scores to base 2, H×N."""
    from .triton_launch import Launch

    launch = Launch(q, k, v, bias, hidden, random, starts, lengths, longest, scale, dropout)
    out, lse = _like(v, padded), _per_row(q)
    launch.forward(out, lse)
    return out, lse


@_attention.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return _like(v), _per_row(q)


@torch.library.custom_op("tupe_fairseq::attention_backward", mutates_args=())
def _gradients(
    d_out: Tensor,
    out: Tensor,
    lse: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    by_keys: Tensor | None,
    hidden: Tensor | None,
    random: Tensor | None,
    starts: Tensor,
    lengths: Tensor,
    longest: int,
    scale: float,
    dropout: float,
    padded: bool,
    trains_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of q, k, v and of the bias; for the last, nothing unless it is trained."""
    from .triton_launch import Launch

    if bias is not None and by_keys is None:
        by_keys = transposed(bias)
    inputs = q, k, v, by_keys, hidden, random
    launch = Launch(*inputs, starts, lengths, longest, scale, dropout)
    d_out, delta = d_out.contiguous(), _per_row(q)
    dq, dk, dv = (_like(x, padded) for x in (q, k, v))
    d_bias = _like_bias(q, bias if trains_bias else None)
    launch.deltas(out, d_out, delta)
    for head, ds in launch.chunks():
        launch.keys_values((d_out, lse, delta), dk, dv, ds, head)
        launch.queries(ds, dq, head)
        if trains_bias:
            launch.bias_sum(ds, d_bias, head)
    return dq, dk, dv, d_bias


@_gradients.register_fake
def _(
    d_out: Tensor, out: Tensor, lse: Tensor, q: Tensor, k: Tensor, v: Tensor, *others: Any
) -> tuple[Tensor, ...]:
    bias, trains_bias = others[0], others[-1]
    return _like(q), _like(k), _like(v), _like_bias(q, bias if trains_bias else None)


def _like(x: Tensor, padded: bool = False) -> Tensor:
    """N×H×D, of zeros where rows can be padding, which no kernel writes."""
    return x.new_zeros(x.shape) if padded else x.new_empty(x.shape)


def _like_bias(q: Tensor, bias: Tensor | None) -> Tensor:
    return q.new_empty(0) if bias is None else bias.new_empty(bias.shape)


def _per_row(q: Tensor) -> Tensor:
    """A number for each head and row, H×N."""
    return q.new_empty(q.size(1), q.size(0), dtype=torch.float32)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, longest, scale, dropout, padded = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output, *tensors)
    ctx.numbers = longest, scale, dropout, padded
    # The logsumexp is for the backward pass alone: no zeros are made for its gradient.
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, d_out: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    trains_bias = ctx.needs_input_grad[3]
    *found, d_bias = _gradients(d_out, *saved, *ctx.numbers, trains_bias)
    found = (*found, d_bias if trains_bias else None)
    inputs = (d_out, *(x for x in saved[2:6] if x is not None))
    return (*refuse_second(found, inputs, "triton"), *(None,) * 9)


_attention.register_autograd(_differentiate, setup_context=_save)
