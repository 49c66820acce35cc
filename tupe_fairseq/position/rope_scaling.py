"""Frequencies of rotary positions for texts longer than those trained on: `--rope-scaling`.

Each scaling changes the frequencies θ_d = b^{−2d/D} of base b and rotated width D, by a factor s
and the trained length L. Results equal those of transformers' `modeling_rope_utils`, which has all
of them but `ntk`.
"""

import math

import torch
from torch import Tensor

from ..base.errors import ConfigurationError
from ..base.registry import Registry
from .deleted import SCALINGS

ROPE_SCALINGS = Registry("--rope-scaling", deleted=SCALINGS)


def frequencies(theta: float | Tensor, width: int) -> Tensor:
    """θ_d, D/2 values in float64; of several bases, ...×1, it is ...×(D/2)."""
    device = theta.device if isinstance(theta, Tensor) else None
    return theta ** (-torch.arange(0, width, 2, dtype=torch.float64, device=device) / width)


class Scaling:
    """Base class of scalings, which leaves the frequencies as they are.

    Args:
        factor: s, at least 1.
        original: L, in tokens.

    Raises:
        ConfigurationError: a factor below 1 or infinite, or a trained length below 2.
    """

    #: Whether the frequencies depend on the length of a text.
    depends_on_length = False
    #: The factor of cosines and sines.
    magnitude = 1.0

    def __init__(self, factor: float, original: int):
        if not 1 <= factor < math.inf:
            raise ConfigurationError(
                f"--rope-scaling-factor must be a finite number of at least 1, but is {factor}."
            )
        if original < 2:
            raise ConfigurationError(
                f"--rope-original-positions must be at least 2, but is {original}."
            )
        self.factor = factor
        self.original = original

    def frequencies(self, theta: float, width: int, length: int | Tensor = 0) -> Tensor:
        """The scaled frequencies, D/2 values in float64.

        Args:
            theta: base b.
            width: D.
            length: n, the tokens of a text, where frequencies depend on it; or those of several
                texts, ...×1, of which the frequencies are ...×(D/2).
        """
        return frequencies(theta, width)


@ROPE_SCALINGS.register("linear")
class Linear(Scaling):
    """θ/s: position interpolation (Chen et al. 2023)."""

    def frequencies(self, theta: float, width: int, length: int | Tensor = 0) -> Tensor:
        return frequencies(theta, width) / self.factor


@ROPE_SCALINGS.register("ntk")
class Ntk(Scaling):
    """b·s^{D/(D−2)} in place of b (bloc97 2023): the lowest frequency becomes θ/s."""

    def frequencies(self, theta: float, width: int, length: int | Tensor = 0) -> Tensor:
        return _with_larger_base(theta, width, self.factor)


@ROPE_SCALINGS.register("dynamic")
class Dynamic(Scaling):
    """b·(s·n/L − (s − 1))^{D/(D−2)} in place of b in a text of n > L tokens (emozilla 2023)."""

    depends_on_length = True

    def frequencies(self, theta: float, width: int, length: int | Tensor = 0) -> Tensor:
        longer = (torch.as_tensor(length).double() / self.original).clamp(min=1)
        return _with_larger_base(theta, width, self.factor * longer - (self.factor - 1))


@ROPE_SCALINGS.register("yarn")
class Yarn(Scaling):
    """(1 − γ)·θ/s + γ·θ, cosines and sines times 0.1·ln s + 1 (Peng et al. 2023).

    γ is 1 for dimensions that make more than `FAST` turns in L, 0 for fewer than `SLOW`. Between
    them it falls linearly in the dimension as in the authors' code, where the paper has linear in
    the number of turns; the ends are rounded to whole dimensions, as there.
    """

    FAST = 32
    SLOW = 1

    def __init__(self, factor: float, original: int):
        super().__init__(factor, original)
        self.magnitude = 0.1 * math.log(factor) + 1

    def frequencies(self, theta: float, width: int, length: int | Tensor = 0) -> Tensor:
        def dimension(turns: float) -> float:
            # The pair, as a real number, that makes this many turns in L.
            return width * math.log(self.original / (turns * 2 * math.pi)) / (2 * math.log(theta))

        if theta <= 1:
            raise ConfigurationError(f"yarn needs --rope-theta above 1, but it is {theta}.")
        first = max(math.floor(dimension(self.FAST)), 0)
        last = min(math.ceil(dimension(self.SLOW)), width - 1)
        # As there, where both are the same.
        between = last - first or 0.001
        pairs = torch.arange(width // 2, dtype=torch.float64)
        scaled = ((pairs - first) / between).clamp(0, 1)
        return frequencies(theta, width) * (scaled / self.factor + 1 - scaled)


def build_scaling(
    name: str | None,
    max_positions: int,
    factor: float | None = None,
    original: int | None = None,
) -> Scaling:
    """The scaling of that name, or without a name one that changes nothing.

    Args:
        name: of `ROPE_SCALINGS`.
        max_positions: longest sequence, in tokens.
        factor: s, if given.
        original: L, if given.

    Raises:
        ConfigurationError: options that the scaling does not take, or that cannot be used.
    """
    if name is None:
        if factor is not None:
            raise ConfigurationError(
                f"--rope-scaling-factor is {factor}, but there is no --rope-scaling: give both, "
                "or none."
            )
        return Scaling(1, 2)
    factor, original = factor_and_length(max_positions, factor, original)
    return ROPE_SCALINGS[name](factor, original)


def factor_and_length(
    max_positions: int, factor: float | None, original: int | None
) -> tuple[float, int]:
    """Factor and trained length, of which one follows from the other.

    Raises:
        ConfigurationError: neither is given.
    """
    if original is not None:
        longer = max(max_positions / max(original, 1), 1.0)
        return longer if factor is None else factor, original
    if factor is None:
        raise ConfigurationError(
            "--rope-scaling needs --rope-scaling-factor: the maximum length divided by the "
            "trained length."
        )
    return factor, max(round(max_positions / max(1, factor)), 2)


def _with_larger_base(theta: float, width: int, by: float | Tensor) -> Tensor:
    if width < 4:
        raise ConfigurationError(
            f"--rope-scaling ntk and dynamic need 4 rotated dimensions, but there are {width}."
        )
    return frequencies(theta * by ** (width / (width - 2)), width)
