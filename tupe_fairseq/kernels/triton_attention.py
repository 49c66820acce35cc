"""Attention under a dense bias that the sequences of a batch share, by Triton kernels on GPUs.

softmax(scale · q kᵀ + B) v with dropout, for packed tokens, and its gradients. FlashAttention
(Dao 2023) has no bias; FlexAttention has no dropout, and sums the gradient of a bias by atomics.
Here the kernel for keys and values also stores the gradient of the scores. What remains is a
product with the keys and one sum over the batch. Heads go in chunks where these take more
than `triton_launch.STORED` bytes. Autograd adds the gradients of a bias that layers share: one
sum for all layers would have to pass through every layer, for 2% of the time at 4,096 tokens.

Scores may also have what queries and keys add by distance, as in DeBERTa; triton_distances.py
says how.

Without a GPU the kernels run in Triton's interpreter: set TRITON_INTERPRET=1 before the first
import of triton.
"""

from typing import Any

import torch
from torch import Tensor

from .first_derivatives import refuse_second

#: The widest vectors that the kernels take.
WIDEST = 128


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    starts: Tensor | None,
    ends: Tensor | None,
    longest: int,
    bias: Tensor | None = None,
    hidden: Tensor | None = None,
    scale: float = 1.0,
    dropout: float = 0.0,
    padded: bool = True,
    by_keys: Tensor | None = None,
    random: Tensor | None = None,
    for_queries: Tensor | None = None,
    for_keys: Tensor | None = None,
) -> Tensor:
    """softmax(scale · q kᵀ + bias + what is read by distance) v in each sequence and head.

    Under autocast, q, k and v are cast to its dtype. There are no second derivatives.

    Args:
        q: queries of packed tokens, N×H×D, in fp32, fp16 or bf16; D is at most `WIDEST`.
        k: keys, N×H×D.
        v: values, N×H×D.
        starts: row of the first token of each sequence, B; None where each has T rows.
        ends: row after its last token, B; or None.
        longest: T, not below any length.
        bias: added to the scores, H×T×T, in any of these dtypes.
        hidden: added to the scores of each key, N, in fp32.
        scale: factor of the products.
        dropout: probability of dropping a weight.
        padded: whether a row may be of no sequence.
        by_keys: what `transposed` returned for the bias; None: the backward pass computes it.
        random: what `random_numbers` returned; None: it is called.
        for_queries: vectors a of the distances 1 − T, ..., T − 1, H×(2T−1)×D; q_i · a_{j−i} is
            added to the scores. Rows of no sequence must be finite then.
        for_keys: vectors b likewise; k_j · b_{j−i} is added.

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
    for_queries, for_keys = (x if x is None else x.to(q.dtype) for x in (for_queries, for_keys))
    if not dropout:
        random = None
    elif random is None:
        random = random_numbers(q.size(0), q.size(1), q.device)[0]
    tensors = q, k, v, bias, by_keys, hidden, random, for_queries, for_keys, starts, ends
    return _attention(*tensors, longest, scale, dropout, padded)[0]


def random_numbers(rows: int, heads: int, device: torch.device, layers: int = 1) -> Tensor:
    """Random numbers of dropout, from torch's generator of the device: L×2×H×N for N rows."""
    shape = (layers, 2, heads, rows)
    return torch.randint(-(1 << 31), 1 << 31, shape, dtype=torch.int32, device=device)


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
    for_queries: Tensor | None,
    for_keys: Tensor | None,
    starts: Tensor | None,
    ends: Tensor | None,
    longest: int,
    scale: float,
    dropout: float,
    padded: bool,
) -> tuple[Tensor, Tensor]:
    """The output, and the logsumexp of the scores to base 2, H×N."""
    from .triton_launch import Launch

    tensors = q, k, v, bias, hidden, random, for_queries, for_keys, starts, ends
    launch = Launch(*tensors, longest, scale, dropout)
    out = _like(v, padded)
    lse = _per_row(q)
    # Triton launches on the current GPU, which need not be that of the tensors.
    with torch.cuda.device_of(q):
        for heads in launch.parts():
            launch.forward(out, lse, heads)
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
    for_queries: Tensor | None,
    for_keys: Tensor | None,
    starts: Tensor | None,
    ends: Tensor | None,
    longest: int,
    scale: float,
    dropout: float,
    padded: bool,
    trains_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of q, k, v, of the bias if it is trained, and of vectors by distance."""
    from .triton_launch import Launch

    if bias is not None and by_keys is None:
        by_keys = transposed(bias)
    inputs = q, k, v, by_keys, hidden, random, for_queries, for_keys, starts, ends
    launch = Launch(*inputs, longest, scale, dropout)
    d_out = d_out.contiguous()
    delta = _per_row(q)
    dq, dk, dv = (_like(x, padded) for x in (q, k, v))
    d_bias = _empty(q, bias if trains_bias else None)
    by_distance = _empty(q, for_queries), _empty(q, for_keys)
    with torch.cuda.device_of(q):
        launch.deltas(out, d_out, delta)
        for heads, ds in launch.chunks():
            tables = launch.tables(heads)
            launch.keys_values(tables, (d_out, lse, delta), dk, dv, ds, heads.start)
            launch.queries(ds, dq, heads.start)
            if trains_bias:
                launch.bias_sum(ds, d_bias, heads.start)
            launch.distances(tables, ds, (dq, dk), by_distance, heads)
    return dq, dk, dv, d_bias, *by_distance


@_gradients.register_fake
def _(
    d_out: Tensor, out: Tensor, lse: Tensor, q: Tensor, k: Tensor, v: Tensor, *others: Any
) -> tuple[Tensor, ...]:
    bias = others[0] if others[-1] else None
    of_parameters = (_empty(q, x) for x in (bias, *others[4:6]))
    return _like(q), _like(k), _like(v), *of_parameters


def _like(x: Tensor, padded: bool = False) -> Tensor:
    """N×H×D, of zeros where rows can be padding, which no kernel writes."""
    return x.new_zeros(x.shape) if padded else x.new_empty(x.shape)


def _empty(q: Tensor, x: Tensor | None) -> Tensor:
    """Room for the gradient of x, if there is one."""
    return q.new_empty(0) if x is None else x.new_empty(x.shape)


def _per_row(q: Tensor) -> Tensor:
    """A number for each head and row, H×N."""
    return q.new_empty(q.size(1), q.size(0), dtype=torch.float32)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, longest, scale, dropout, padded = inputs
    ctx.save_for_backward(*output, *tensors)
    ctx.numbers = longest, scale, dropout, padded
    # The logsumexp is for the backward pass alone: no zeros are made for its gradient.
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, d_out: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    # Of q, k, v, the bias, and vectors by distance
    inputs = (*saved[2:6], *saved[9:11])
    trains_bias = ctx.needs_input_grad[3]
    *found, d_bias, by_query, by_key = _gradients(d_out, *saved, *ctx.numbers, trains_bias)
    known = (*found, *(x if x.numel() else None for x in (d_bias, by_query, by_key)))
    others = (d_out, *(x for x in inputs if x is not None))
    *dqkv, d_bias, by_query, by_key = refuse_second(known, others, "triton")
    return (*dqkv, d_bias, None, None, None, by_query, by_key, *(None,) * 6)


_attention.register_autograd(_differentiate, setup_context=_save)
