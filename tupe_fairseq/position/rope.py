"""Rotary positions (Su et al. 2021, RoFormer): queries and keys are rotated by their position.

Equation 15: the pair (x_{2i}, x_{2i+1}) at position k is rotated by k·θ_i, θ_i = 10000^{−2i/D}, so
q_m · k_n depends on m − n only. Pairs are neighbouring dimensions, as in the paper; some libraries
pair dimension i with i + D/2, which permutes the rows of W^Q and W^K.

Options: frequencies for texts longer than those trained on (`rope_scaling`); a part of the
dimensions, with the frequencies of a head of that width (GPT-NeoX) or the highest frequencies of
the whole head (p-RoPE, Barbero et al. 2025; Gemma 4); every N-th layer without rotation (SmolLM3,
Llama 4); another base in layers with a window, whose frequencies are not scaled (ModernBERT,
Gemma 3).
"""

import copy
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from ..errors import ConfigurationError
from .base import PositionEncoding, Shape, check_at_least, register_position_encoding
from .randomized import RandomizedEncoding, RandomizePositions
from .rope_scaling import ROPE_SCALINGS, Scaling, frequencies, read_settings
from .tables import ConstantTable

RopeTheta = Annotated[float, "base of the rotation frequencies"]


class Rotation(nn.Module):
    """Rotates neighbouring pairs of the first R dimensions of vectors.

    Args:
        frequencies: by pair, R/2 values in fp64.
        length: number of positions N.
        magnitude: factor of cosines and sines.
    """

    def __init__(self, frequencies: Tensor, length: int, magnitude: float = 1.0):
        super().__init__()
        self.width = 2 * len(frequencies)
        positions = torch.arange(length, dtype=torch.float64)
        # N×1 · 1×(R/2)
        angles = positions[:, None] * frequencies
        self.cos = ConstantTable(angles.cos() * magnitude)
        self.sin = ConstantTable(angles.sin() * magnitude)

    def forward(self, x: Tensor, positions: slice | Tensor) -> Tensor:
        """Rotate B×H×T×D at T positions."""
        cos, sin = self.cos.select(x.dtype, positions), self.sin.select(x.dtype, positions)
        if self.width == x.size(-1):
            return rotate_pairs(x, cos, sin)
        turned = rotate_pairs(x[..., : self.width], cos, sin)
        return torch.cat((turned, x[..., self.width :]), -1)


def rotate_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate neighbouring pairs of B×H×T×R by tables T×(R/2)."""
    # B×H×T×R -> two of B×H×T×(R/2), widened by the tables
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1)
    return turned.flatten(-2).type_as(x)


def check_rotation(name: str, shape: Shape, theta: float, flag: str = "--rope-theta") -> None:
    """Refuse a head width that has no pairs, and a base (of this flag) that has no powers."""
    if shape.head_dim % 2:
        raise ConfigurationError(
            f"{name} rotates pairs: the head width must be even, but is {shape.head_dim}."
        )
    if not theta > 0:
        raise ConfigurationError(f"{flag} must be positive, but is {theta}.")


@register_position_encoding("rope")
class RotaryPosition(RandomizedEncoding):
    """Has no parameters; the rotation of any position can be computed."""

    enters = "query, key"
    paper = "Su 2021"
    beyond_trained_length = "any length, --rope-scaling"

    def __init__(
        self,
        shape: Shape,
        *,
        rope_theta: RopeTheta = 10000.0,
        rope_values: Annotated[bool, "rotate the values too"] = False,
        rope_fraction: Annotated[float, "fraction of the head's dimensions that rotate"] = 1.0,
        rope_proportional: Annotated[
            bool, "with --rope-fraction: the highest frequencies of the whole head (p-RoPE)"
        ] = False,
        rope_skip_every: Annotated[
            int, "every N-th layer does not rotate (layers N, 2N, ... counted from 1); 0: none"
        ] = 0,
        rope_theta_local: Annotated[
            float | None, "base in layers with --attention-window, whose frequencies stay unscaled"
        ] = None,
        rope_scaling: Annotated[
            str | None, f"frequencies for longer texts, one of: {', '.join(ROPE_SCALINGS)}"
        ] = None,
        rope_scaling_factor: Annotated[
            float | None, "how much longer; without it --max-positions over the trained length"
        ] = None,
        rope_scaling_settings: Annotated[
            str | None, "settings of --rope-scaling as JSON, named as in transformers"
        ] = None,
        rope_original_positions: Annotated[
            int | None,
            "length trained without --rope-scaling; checkpoints record it, otherwise "
            "--max-positions over --rope-scaling-factor",
        ] = None,
        randomize_positions: RandomizePositions = 0,
    ):
        super().__init__(shape, randomize_positions)
        if rope_scaling and randomize_positions:
            raise ConfigurationError(
                f"--rope-scaling is {rope_scaling}, but --randomize-positions trains positions "
                "for longer texts already: give one of them."
            )
        check_rotation("rope", shape, rope_theta)
        check_at_least("--rope-skip-every", rope_skip_every, 0)
        self.rope_values, self.skip_every = rope_values, rope_skip_every
        self.theta, self.width = rope_theta, _rotated_width(shape.head_dim, rope_fraction)
        #: D of the frequencies b^{−2d/D}, of which the first are used.
        self.spectrum = shape.head_dim if rope_proportional else self.width
        self.scaling = _scaling(
            shape.max_positions,
            rope_scaling,
            rope_scaling_factor,
            rope_scaling_settings,
            rope_original_positions,
        )
        if self._depends_on_length:
            # Settings that only longer passes read are refused here, too.
            self._rotation(0, shape.max_positions)
        self.rotation = self._rotation(self.reach)
        part = {"rope_fraction": rope_fraction, "rope_proportional": rope_proportional}
        self.local = self._in_local_layers(rope_theta_local, part)
        if rope_values and self.scaling is not None and self.scaling.magnitude != 1:
            raise ConfigurationError(
                f"--rope-values rotates values, which --rope-scaling {rope_scaling} would also "
                "make larger: use linear, ntk, dynamic or llama3."
            )
        #: What the layers see that do not rotate.
        self.unrotated = PositionEncoding(shape) if rope_skip_every else None

    @classmethod
    def recorded(cls, options: dict[str, Any], max_positions: int) -> dict[str, Any]:
        factor, original = options["rope_scaling_factor"], options["rope_original_positions"]
        if options["rope_scaling"] is None:
            original = original or max_positions
        else:
            factor, original = _factor(max_positions, factor, original)
        return {
            **options,
            "rope_scaling_factor": factor,
            "rope_original_positions": original,
        }

    def for_pass(self, length: int, device: torch.device) -> PositionEncoding:
        scaling = self.scaling
        if scaling is None or not scaling.depends_on_length or length <= scaling.original:
            return super().for_pass(length, device)
        scaled = copy.copy(self)
        # The copy shares this dictionary, which the assignment would change.
        scaled._modules = dict(self._modules)
        scaled.rotation = self._rotation(length, length).to(device)
        return scaled

    def check_decoding(self) -> None:
        if self._depends_on_length:
            raise ConfigurationError(
                "--rope-scaling dynamic (and longrope with short_factor) depends on the length of "
                "the text, but decoding stores the keys of earlier tokens: use another one, or "
                "leave short_factor out."
            )

    def at(self, layer: int) -> PositionEncoding:
        if self.unrotated is not None and (layer + 1) % self.skip_every == 0:
            return self.unrotated
        return self.local if self.local is not None and self.shape.is_local(layer) else self

    def rotate(
        self, q: Tensor, k: Tensor, v: Tensor, start: int = 0
    ) -> tuple[Tensor, Tensor, Tensor]:
        positions = self.positions(start, start + q.size(2), q.device)
        values = self.rotation(v, positions) if self.rope_values else v
        return self.rotation(q, positions), self.rotation(k, positions), values

    @property
    def _depends_on_length(self) -> bool:
        return self.scaling is not None and self.scaling.depends_on_length

    def _rotation(self, positions: int, length: int = 0) -> Rotation:
        """The rotation of this many positions, in a pass of this length."""
        pairs, scaling = self.width // 2, self.scaling
        if scaling is None:
            return Rotation(frequencies(self.theta, self.spectrum)[:pairs], positions)
        scaled = scaling.frequencies(self.theta, self.spectrum, length)
        return Rotation(scaled[:pairs], positions, scaling.magnitude)

    def _in_local_layers(
        self, theta: float | None, part: dict[str, Any]
    ) -> "RotaryPosition | None":
        """What layers with a window see, or None if they see the same as others."""
        if theta is None:
            return None
        if self.shape.window is None or self.randomize_positions:
            raise ConfigurationError(
                f"--rope-theta-local is {theta}, but needs --attention-window and does not take "
                "--randomize-positions: leave it out."
            )
        check_rotation("rope", self.shape, theta, "--rope-theta-local")
        return RotaryPosition(self.shape, rope_theta=theta, rope_values=self.rope_values, **part)


def _rotated_width(head_dim: int, fraction: float) -> int:
    """The dimensions that rotate, rounded down to an even number."""
    width = 2 * int(head_dim * fraction / 2) if 0 < fraction <= 1 else 0
    if not width:
        raise ConfigurationError(
            f"--rope-fraction must be at most 1 and leave a pair of the head's {head_dim} "
            f"dimensions to rotate, but is {fraction}."
        )
    return width


def _scaling(
    max_positions: int, name: str | None, factor: float | None, settings: Any, original: int | None
) -> Scaling | None:
    if name is None:
        if factor is not None or settings:
            raise ConfigurationError(
                "--rope-scaling-factor or --rope-scaling-settings is given, but no --rope-scaling."
            )
        return None
    factor, original = _factor(max_positions, factor, original)
    return ROPE_SCALINGS[name](factor, original, read_settings(settings))


def _factor(max_positions: int, factor: float | None, original: int | None) -> tuple[float, int]:
    """Factor and trained length, of which one follows from the other.

    Raises:
        ConfigurationError: neither is given.
    """
    if original is not None:
        longer = max(max_positions / max(original, 1), 1.0)
        return longer if factor is None else factor, original
    if factor is None:
        raise ConfigurationError(
            "--rope-scaling needs --rope-scaling-factor: how many times longer the texts are than "
            "those trained on."
        )
    return factor, max(round(max_positions / max(1, factor)), 2)
