"""Attention with any content-free bias on GPUs, in Triton: no B×H×T×T tensor in either direction.

The kernels read the bias in fp32: one H×T×T tensor for all layers and sequences, or H×(2T−1) where
it depends on the distance alone. The backward pass computes scores again (Dao et al. 2022) and
sums the gradient of the bias over sequences inside a program. Dropout masks are those of
`kernels.random_bits`, computed again from their key. No two programs write to the same place, so
the same inputs give the same bits.

The kernels compile for NVIDIA GPUs, but have only been run in Triton's interpreter. Their speed is
not measured, and `auto` does not choose them. flex_attention also reads a bias, but has no
dropout, and its bias gradient is not deterministic.
"""

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..errors import BackendError
from ..kernels.random_bits import draw_key, rounded, threshold
from ..position.indices import sum_diagonals
from .backend import ATTENTION_BACKENDS, Backend, Need

#: Bytes of rows that are computed at a time for the gradient of a bias by distance.
ROWS = 1 << 26


@dataclass(frozen=True)
class Shared:
    """What all layers share: see `kernels.triton.launch.Job`."""

    bias: Tensor | None = None
    padding: Tensor | None = None
    lengths: Tensor | None = None
    sequences: Tensor | None = None


class Triton(Backend):
    """For GPUs: every encoding whose terms do not depend on content."""

    name = "triton"
    serves = frozenset({Need.DISTANCE, Need.WINDOW})

    def unavailable(self, device):
        if importlib.util.find_spec("triton") is None:
            return "triton is not installed (it comes with torch for CUDA)"
        # Triton's interpreter, which is for tests, runs the kernels on CPUs.
        if device != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
            return f"its kernels are for GPUs, and the model is on {device}"
        return None

    def prepare(self, score, layout, heads, dtype):
        if dtype == torch.float64:
            raise BackendError(
                "--attention-backend is 'triton', which computes in fp32, but this model is in "
                "float64; use auto or eager."
            )
        bias = None
        if score is not None:
            score = score.to(torch.float32)
            by_distance = set(score.parts()) == {"by_distance"}
            bias = (score.by_distance if by_distance else score.dense()).contiguous()
        mask = layout.padding_mask
        if layout.lengths is None:
            return Shared(bias, None if mask is None else mask.contiguous().view(torch.uint8))
        lengths, sequences = ((~mask).sum(dim, dtype=torch.int32) for dim in (1, 0))
        return Shared(bias, lengths=lengths, sequences=sequences)

    def attend(self, q, k, v, prepared, terms=None, dropout=0.0, need_weights=False):
        if dropout == 1:
            return torch.zeros_like(v), None
        key = draw_key() if dropout else 0
        # Triton launches on the current device; a CPU has none.
        with torch.cuda.device_of(q):
            return _Attend.apply(q, k, v, prepared.bias, prepared, dropout, key), None


class _Attend(torch.autograd.Function):
    """softmax(q kᵀ + bias) v; B×H×T×D each."""

    @staticmethod
    def forward(ctx, q, k, v, bias, shared, p, key):
        from ..kernels.triton import launch

        q, k, v = _alike(q, k, v)
        dropout = (key, threshold(p), 1 / (1 - rounded(p)), p > 0)
        ctx.constants = (shared.padding, shared.lengths, shared.sequences, *dropout)
        out, lse = launch.attend(launch.Job(q, k, v, bias, *ctx.constants))
        ctx.save_for_backward(q, k, v, bias, out, lse)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        from ..kernels.triton import launch

        q, k, v, bias, out, lse = ctx.saved_tensors
        job = launch.Job(q, k, v, bias, *ctx.constants)
        if gradient.stride() != out.stride():
            gradient = torch.empty_like(out).copy_(gradient)
        *of_vectors, delta = launch.attend_backward(job, out, lse, gradient)
        of_bias = None
        if ctx.needs_input_grad[3]:
            of_bias = _gradient_of_bias(bias, partial(launch.of_bias, job, lse, gradient, delta))
        return *of_vectors, of_bias, None, None, None


def _alike(*vectors: Tensor) -> tuple[Tensor, ...]:
    """The vectors with the same strides and contiguous dimensions."""
    strides = vectors[0].stride()
    if strides[-1] == 1 and all(x.stride() == strides for x in vectors):
        return vectors
    return tuple(x.contiguous() for x in vectors)


def _gradient_of_bias(bias: Tensor, of_rows: Callable[[int, int], Tensor]) -> Tensor:
    """The gradient in the shape of the bias; by distance, without an H×T×T tensor.

    Args:
        bias: H×T×T or H×(2T−1).
        of_rows: computes the gradient of queries first, ..., last − 1, H×(last−first)×T.
    """
    length = bias.size(1) if bias.dim() == 3 else (bias.size(1) + 1) // 2
    if bias.dim() == 3:
        return of_rows(0, length)
    found, step = torch.zeros_like(bias), max(1, ROWS // (4 * len(bias) * length))
    for first in range(0, length, step):
        last = min(first + step, length)
        # Distances from the last of these queries to the first key, ..., from the first to the
        # last.
        found[:, length - last : 2 * length - 1 - first] += sum_diagonals(of_rows(first, last))
    return found


ATTENTION_BACKENDS.register(Triton.name)(Triton())
