"""Constant tables, sinusoids, learned vectors and their random numbers, and the dtypes of sums."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn


class ConstantTable(nn.Module):
    """A constant table that is not saved and stays exact in a half-precision model.

    --fp16 and --bf16 cast every floating-point buffer, and the rounding error of an angle grows to
    several radians at far positions. The table, fp64 of N×anything, is therefore stored as
    integers, which are not cast.
    """

    bits: Tensor

    def __init__(self, table: Tensor):
        super().__init__()
        self.register_buffer("bits", table.double().view(torch.int64), persistent=False)

    def forward(self, dtype: torch.dtype, rows: slice | Tensor = slice(None)) -> Tensor:
        """The given rows, in fp32 or `dtype`, whichever is wider."""
        found = self.bits[rows]
        if not found.is_floating_point():
            found = found.view(torch.float64)
        return found.to(widened(dtype))

    def to_floats(self) -> None:
        """Store fp64, for programs that cannot reinterpret bits: those of ONNX."""
        self.bits = self.bits.view(torch.float64)


def widened(dtype: torch.dtype) -> torch.dtype:
    """The dtype of sums over scores and tables: fp32 for half precision, otherwise unchanged."""
    return torch.promote_types(dtype, torch.float32)


def dtype_of(module: nn.Module) -> torch.dtype:
    """What a module computes in: fp32 unless its parameters are in another floating-point type."""
    dtypes = (p.dtype for p in module.parameters() if p.is_floating_point())
    return next(dtypes, torch.float32)


def affine(module: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Weight, O×I, and bias, O, of a module that computes x Wᵀ + b; in the dtype of x, I.

    The module is called, not read, so that adapters, hooks and quantised weights take part.
    """
    unit = torch.eye(len(x) + 1, len(x), device=x.device, dtype=dtype_of(module))
    out = module(unit).to(x.dtype)
    return (out[:-1] - out[-1]).t(), out[-1]


def without_autocast(device: str) -> AbstractContextManager:
    """A context in which this type of device computes in the dtypes of its inputs."""
    available = torch.amp.is_autocast_available(device)
    return torch.autocast(device, enabled=False) if available else nullcontext()


def sinusoids(positions: Tensor, width: int) -> Tensor:
    """p_{k,2i} = sin(k / 10000^{2i/width}), p_{k,2i+1} = cos(the same) (Vaswani et al. 2017, 3.5).

    Args:
        positions: N positions k, which may be negative.
        width: of the result; where odd, the last cosine is left out.

    Returns:
        N×width, fp64.
    """
    pairs = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device)
    # N×1 · 1×(width/2)
    angles = positions.double()[:, None] * 10000 ** (-pairs / width)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)[:, :width]


def random_vectors(*size: int) -> nn.Parameter:
    """Learned vectors, initialised as BERT's: from a normal distribution of deviation 0.02."""
    vectors = nn.Parameter(torch.empty(size))
    # While transformers 4 loads a model, this does nothing and returns None.
    nn.init.normal_(vectors, std=0.02)
    return vectors


@contextmanager
def isolated_rng() -> Iterator[None]:
    """Draw random numbers inside from a separate seed; torch's generator draws one number.

    Models with the same seed and different encodings thus have the same weights elsewhere.
    """
    seed = int(torch.empty((), dtype=torch.int64, device="cpu").random_())
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def per_head(rows: Tensor, heads: int) -> Tensor:
    """Vectors of the model width divided among the heads: R×C -> H×R×D."""
    return rows.unflatten(-1, (heads, -1)).transpose(0, 1)
