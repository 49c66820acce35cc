"""Attention with any content-free bias on GPUs, in Triton: no B×H×T×T tensor in either direction.

The bias is read inside the kernels in fp32: one H×T×T tensor for all layers and sentences, or
H×(2T−1) where it depends on the distance alone. Scores are made again in the backward pass (Dao et
al. 2022), where the gradient of the bias is summed over sentences inside a program. Dropout masks
are those of `modules.dropout`, made again from their key: same seed, same mask. No program adds to
what another writes, so the same inputs give the same bits.

The kernels compile for NVIDIA GPUs, but have only been run in Triton's interpreter: nothing is
measured yet, and `auto` does not choose them. flex_attention, which reads a bias too, has no
dropout, and sums the bias gradient in any order.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..errors import UsageError
from ..kernels.dropout import draw_key, rounded, threshold
from ..position.indices import sum_diagonals
from .backend import ATTENTION_BACKENDS, Backend

#: Bytes of the gradient of a bias by distance that are made at a time.
ROWS = 1 << 26


@dataclass(frozen=True)
class Shared:
    """What all layers share: see `triton_kernels.launch.Job`."""

    bias: Tensor | None = None
    padding: Tensor | None = None
    lengths: Tensor | None = None
    sentences: Tensor | None = None


class Triton(Backend):
    """For GPUs: every encoding whose terms do not depend on content."""

    name = "triton"
    compiles = False

    def speed(self, device):
        # Never before another: not measured.
        return -1

    def refuses(self, encoding, terms, need_weights):
        if need_weights:
            return "it does not return attention weights"
        if terms is not None:
            return "it cannot add a positional term that depends on content"
        return None

    def lacks(self, device):
        if importlib.util.find_spec("triton") is None:
            return "triton is not installed (it comes with torch for CUDA)"
        # In Triton's interpreter, which is for tests, the kernels run on CPUs.
        if device != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
            return f"its kernels are for GPUs, and the model is on {device}"
        return None

    def prepare(self, score, layout, heads, dtype):
        if dtype == torch.float64:
            raise UsageError(
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
        lengths, sentences = ((~mask).sum(dim, dtype=torch.int32) for dim in (1, 0))
        return Shared(bias, lengths=lengths, sentences=sentences)

    def attend(self, q, k, v, shared, layer):
        p = layer.dropout if layer.training else 0.0
        if p == 1:
            return torch.zeros_like(v), None
        prepared, key = shared.prepared, draw_key() if p else 0
        # Triton launches on the current device; a CPU has none.
        with torch.cuda.device_of(q):
            return _Attend.apply(q, k, v, prepared.bias, prepared, p, key), None


class _Attend(torch.autograd.Function):
    """softmax(q kᵀ + bias) v; B×H×T×D each."""

    @staticmethod
    def forward(ctx, q, k, v, bias, shared, p, key):
        from ..kernels.triton import launch

        q, k, v = _alike(q, k, v)
        dropout = (key, threshold(p), 1 / (1 - rounded(p)), p > 0)
        ctx.constants = (shared.padding, shared.lengths, shared.sentences, *dropout)
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
    """With the same strides, dimensions side by side."""
    strides = vectors[0].stride()
    if strides[-1] == 1 and all(x.stride() == strides for x in vectors):
        return vectors
    return tuple(x.contiguous() for x in vectors)


def _gradient_of_bias(bias: Tensor, of_rows: Callable[[int, int], Tensor]) -> Tensor:
    """In the shape of the bias; one by distance never becomes H×T×T where that is large.

    Args:
        bias: H×T×T or H×(2T−1).
        of_rows: makes the gradient of queries first, ..., last − 1, H×(last−first)×T.
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
