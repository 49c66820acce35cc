"""Rotary positions (Su et al. 2021, RoFormer): queries and keys are rotated by their position.

Equation 15: the pair (x_{2i}, x_{2i+1}) at position k is rotated by k·θ_i, θ_i = 10000^{−2i/D}, so
q_m · k_n depends on m − n only. Pairs are neighbouring dimensions, as in the paper; LLaMA,
ModernBERT and others pair dimension i with i + D/2, which permutes the rows of W^Q and W^K.

Options: frequencies for texts longer than those trained on (`rope_scaling`); a part of the
dimensions, with the frequencies of a head of that width (GPT-NeoX) or the highest frequencies of
the whole head (p-RoPE, Barbero et al. 2025; Gemma 4); every N-th layer without rotation (SmolLM3,
Llama 4); another base in layers with a window, whose frequencies are not scaled (ModernBERT,
Gemma 3).
"""

import copy
import math
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from ..base.errors import ConfigurationError
from ..base.options import Mark
from ..kernels.rotation import rotate
from .base import PositionEncoding, Shape, check_at_least, register_position_encoding
from .dtypes import widened
from .rope_scaling import ROPE_SCALINGS, build_scaling, factor_and_length
from .tables import ConstantTable
from .unused import refuse_unused, warn_unused

RopeTheta = Annotated[float, "base of the rotation frequencies"]
Halves = Annotated[bool, "pair dimension i with i + D/2, not with its neighbour", Mark.FIXED]
Proportional = Annotated[
    bool, "with --rope-fraction: use the highest frequencies of the whole head (p-RoPE)"
]
SkipEvery = Annotated[
    int, "layers N, 2N, ..., counted from 1, do not rotate; 0: all layers rotate"
]
ThetaLocal = Annotated[
    float | None, "base in layers with --attention-window, whose frequencies are not scaled"
]
ScalingName = Annotated[
    str | None,
    f"frequencies for longer texts, one of: {', '.join(ROPE_SCALINGS)}",
    Mark.FOR_LONGER_TEXTS,
]
ScalingFactor = Annotated[
    float | None,
    "new length / trained length; by default --max-positions / trained length",
    Mark.FREE,
]
OriginalPositions = Annotated[
    int | None,
    "length trained without --rope-scaling; checkpoints record it; by default "
    "--max-positions / --rope-scaling-factor",
    Mark.FREE,
]


class Rotation(nn.Module):
    """Rotates pairs among the first R dimensions, at positions below `length`.

    There are R/2 frequencies, in fp64, or those of each text, B×(R/2). `magnitude` is a factor of
    cosines and sines. Pairs are neighbours, or of two `halves`.
    """

    def __init__(self, frequencies: Tensor, length: int, magnitude: float, halves: bool):
        super().__init__()
        self.halves = halves
        positions = torch.arange(length, dtype=torch.float64, device=frequencies.device)
        # N×(R/2), or N×B×(R/2)
        angles = torch.tensordot(positions, frequencies, 0)
        self.cos = ConstantTable(angles.cos() * magnitude)
        self.sin = ConstantTable(angles.sin() * magnitude)

    def at(self, positions: slice | Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosines and sines at these positions, for tensors of this dtype."""
        return self.cos(dtype, positions), self.sin(dtype, positions)

    def forward(self, tables: tuple[Tensor, Tensor], *vectors: Tensor) -> list[Tensor]:
        """Rotate tensors of B×H×T×D by what `at` returned for T positions."""
        wide = widened(vectors[0].dtype)
        cos, sin = (table.to(wide) for table in tables)
        if cos.dim() == 3:
            # T×B×(R/2) -> B×1×T×(R/2)
            cos = cos.transpose(0, 1)[:, None]
            sin = sin.transpose(0, 1)[:, None]
        return [rotate(x, cos, sin, self.halves) for x in vectors]


def check_rotation(name: str, shape: Shape, theta: float, flag: str = "--rope-theta") -> None:
    """Check that the head width has pairs, and the base, of this flag, as `check_base`."""
    if shape.head_dim % 2:
        raise ConfigurationError(
            f"{name} rotates pairs: the head width must be even, but is {shape.head_dim}."
        )
    check_base(theta, flag)


def check_base(theta: float, flag: str = "--rope-theta") -> None:
    """Check that the base, of this flag, is positive and finite."""
    if not 0 < theta < math.inf:
        raise ConfigurationError(f"{flag} must be positive and finite, but is {theta}.")


@register_position_encoding("rope")
class RotaryPosition(PositionEncoding):
    """Has no parameters; the rotation of any position can be computed."""

    def __init__(
        self,
        shape: Shape,
        *,
        rope_theta: RopeTheta = 10000.0,
        rope_values: Annotated[bool, "rotate the values too"] = False,
        rope_halves: Halves = False,
        rope_fraction: Annotated[float, "fraction of the head's dimensions that rotate"] = 1.0,
        rope_proportional: Proportional = False,
        rope_skip_every: SkipEvery = 0,
        rope_theta_local: ThetaLocal = None,
        rope_scaling: ScalingName = None,
        rope_scaling_factor: ScalingFactor = None,
        rope_original_positions: OriginalPositions = None,
    ):
        super().__init__(shape)
        check_rotation("rope", shape, rope_theta)
        check_at_least("--rope-skip-every", rope_skip_every, 0)
        if rope_skip_every == 1:
            raise ConfigurationError(
                "--rope-skip-every is 1, but then no layer rotates: use --position-encoding none."
            )
        self.theta = rope_theta
        self.rotates_values = rope_values
        self.skip_every = rope_skip_every
        self.width = _rotated_width(shape.head_dim, rope_fraction)
        self.halves = rope_halves
        #: D of the frequencies b^{−2d/D}, of which the first are used.
        self.spectrum = shape.head_dim if rope_proportional else self.width
        self.scaling = build_scaling(
            rope_scaling,
            shape.max_positions,
            rope_scaling_factor,
            rope_original_positions,
        )
        self._check_scaling(rope_scaling)
        self._check_unused(rope_proportional, rope_scaling, rope_original_positions)
        self.rotation = self._rotation(shape.max_positions)
        #: In its place in one pass (`for_pass`); in a list, because copies share their submodules.
        self.in_pass: list[Rotation] = []
        #: Cosines and sines of packed tokens in one pass (`for_tokens`).
        self.at_tokens: tuple[Tensor, Tensor] | None = None
        self.local: RotaryPosition | None = None
        if rope_theta_local is not None:
            self._check_local_theta(rope_theta_local)
            self.local = RotaryPosition(
                shape,
                rope_theta=rope_theta_local,
                rope_values=rope_values,
                rope_halves=rope_halves,
                rope_fraction=rope_fraction,
                rope_proportional=rope_proportional,
            )
        #: For layers that do not rotate.
        self.unrotated = PositionEncoding(shape) if rope_skip_every else None

    @classmethod
    def recorded(cls, options: dict[str, Any], max_positions: int) -> dict[str, Any]:
        factor = options["rope_scaling_factor"]
        original = options["rope_original_positions"]
        if options["rope_scaling"] is None:
            original = original or max_positions
        else:
            factor, original = factor_and_length(max_positions, factor, original)
        return {**options, "rope_scaling_factor": factor, "rope_original_positions": original}

    def for_pass(
        self, length: int, device: torch.device, padding_mask: Tensor | None = None
    ) -> PositionEncoding:
        if not self.scaling.depends_on_length or length <= self.scaling.original:
            return self
        if padding_mask is None:
            lengths = torch.tensor([length], device=device)
        else:
            lengths = (~padding_mask).sum(1)
        scaled = copy.copy(self)
        scaled.in_pass = [self._rotation(length, lengths[:, None])]
        return scaled

    def for_tokens(self, positions: Tensor, dtype: torch.dtype) -> PositionEncoding | None:
        if self.in_pass:
            # Each text has frequencies of its own.
            return None
        of_tokens = copy.copy(self)
        of_tokens.at_tokens = self.rotation.at(positions, dtype)
        return of_tokens

    def check_decoding(self) -> None:
        if self.scaling.depends_on_length:
            raise ConfigurationError(
                "--rope-scaling dynamic depends on the length of the text, but decoding stores "
                "the keys of earlier tokens: use another one."
            )

    def at(self, layer: int) -> PositionEncoding:
        if self.unrotated is not None and (layer + 1) % self.skip_every == 0:
            return self.unrotated
        if self.local is not None and self.shape.window_at(layer) is not None:
            return self.local
        return self

    def rotate(
        self, q: Tensor, k: Tensor, v: Tensor, start: int = 0
    ) -> tuple[Tensor, Tensor, Tensor]:
        rotation = self.in_pass[0] if self.in_pass else self.rotation
        tables = self.at_tokens or rotation.at(slice(start, start + q.size(2)), q.dtype)
        if self.rotates_values:
            q, k, v = rotation(tables, q, k, v)
        else:
            q, k = rotation(tables, q, k)
        return q, k, v

    def _rotation(self, positions: int, lengths: int | Tensor = 0) -> Rotation:
        """The rotation of this many positions, in texts of these lengths, one or B×1."""
        frequencies = self.scaling.frequencies(self.theta, self.spectrum, lengths)
        used = frequencies[..., : self.width // 2]
        magnitude = self.scaling.magnitude
        return Rotation(used, positions, magnitude, self.halves)

    def _check_scaling(self, name: str | None) -> None:
        if self.rotates_values and self.scaling.magnitude != 1:
            raise ConfigurationError(
                f"--rope-values rotates values, which --rope-scaling {name} would also make "
                "larger: use linear, ntk or dynamic."
            )

    def _check_unused(self, proportional: bool, scaling: str | None, original: int | None) -> None:
        if proportional and self.width == self.shape.head_dim:
            refuse_unused("--rope-proportional", True, "--rope-fraction below 1")
        if scaling is None and original not in (None, self.shape.max_positions):
            # Recorded by a checkpoint, or given in vain.
            warn_unused("--rope-original-positions", original, "--rope-scaling")

    def _check_local_theta(self, theta: float) -> None:
        if self.shape.attention_window is None:
            raise ConfigurationError(
                f"--rope-theta-local is {theta}, but it needs --attention-window: leave it out."
            )
        check_rotation("rope", self.shape, theta, "--rope-theta-local")
        if not self.shape.global_every:
            raise ConfigurationError(
                f"--rope-theta-local is {theta}, but without --global-every all layers are local: "
                "give the base by --rope-theta."
            )


def _rotated_width(head_dim: int, fraction: float) -> int:
    """The dimensions that rotate, rounded down to an even number."""
    width = 2 * int(head_dim * fraction / 2) if 0 < fraction <= 1 else 0
    if not width:
        raise ConfigurationError(
            f"--rope-fraction must be at most 1 and leave a pair of the head's {head_dim} "
            f"dimensions to rotate, but is {fraction}."
        )
    return width
