"""Frequencies of rotary positions for texts longer than those trained on: `--rope-scaling`.

Each scaling changes the frequencies θ_d = b^{−2d/D} of base b and rotated width D, by a factor s
and the trained length L. Results equal those of transformers' `modeling_rope_utils`, which has all
of them but `ntk`; settings have the names that they have there.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..base.errors import ConfigurationError
from ..base.registry import Registry

ROPE_SCALINGS = Registry("--rope-scaling")


def frequencies(theta: float | Tensor, width: int) -> Tensor:
    """θ_d, D/2 values in float64; of several bases, ...×1, it is ...×(D/2)."""
    device = theta.device if isinstance(theta, Tensor) else None
    return theta ** (-torch.arange(0, width, 2, dtype=torch.float64, device=device) / width)


class Scaling:
    """Base class of scalings, which leaves the frequencies as they are.

    Args:
        factor: s, at least 1.
        original: L, in tokens.
        settings: those that differ from `defaults`.

    Raises:
        ConfigurationError: a factor below 1 or infinite, or a setting that is unknown or cannot be
            used.
    """

    #: The settings and their defaults.
    defaults: ClassVar[dict[str, Any]] = {}
    #: Whether the frequencies depend on the length of a text.
    depends_on_length = False
    #: The factor of cosines and sines.
    magnitude = 1.0

    def __init__(self, factor: float, original: int, settings: Mapping[str, Any]):
        if not 1 <= factor < math.inf:
            raise ConfigurationError(
                f"--rope-scaling-factor must be a finite number of at least 1, but is {factor}."
            )
        if original < 2:
            raise ConfigurationError(
                f"--rope-original-positions must be at least 2, but is {original}."
            )
        self.factor, self.original = factor, original
        for name, value in settings.items():
            self._check_setting(name, value)
        self.settings = {**self.defaults, **settings}

    def frequencies(self, theta: float, width: int, length: int | Tensor = 0) -> Tensor:
        """The scaled frequencies, D/2 values in float64.

        Args:
            theta: base b.
            width: D.
            length: n, the tokens of a text, where frequencies depend on it; or those of several
                texts, ...×1, of which the frequencies are ...×(D/2).
        """
        return frequencies(theta, width)

    def _check_setting(self, name: str, value: Any) -> None:
        if name not in self.defaults:
            raise ConfigurationError(
                f"--rope-scaling-settings has {name!r}, but the settings of this scaling are: "
                f"{', '.join(self.defaults) or 'none'}."
            )
        if name in ("long_factor", "short_factor"):
            wanted = "a list of positive numbers"
            # YAML has sequences of its own.
            right = isinstance(value, Sequence) and all(map(_is_positive, value))
        elif isinstance(self.defaults[name], bool):
            wanted, right = "true or false", isinstance(value, bool)
        else:
            wanted, right = "a positive number", _is_positive(value)
        # null is the default of settings that have none.
        if not right and (value is not None or self.defaults[name] is not None):
            raise ConfigurationError(
                f"--rope-scaling-settings: {name} must be {wanted}, but is {str(value)[:80]}."
            )


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

    γ is 1 for dimensions that make more than `beta_fast` turns in L, 0 for fewer than `beta_slow`.
    Between them it falls linearly in the dimension as in the authors' code, where the paper has
    linear in the number of turns; `truncate` rounds the ends to whole dimensions, as there.
    """

    defaults: ClassVar = {
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": True,
        "attention_factor": None,
    }

    def __init__(self, factor: float, original: int, settings: Mapping[str, Any]):
        super().__init__(factor, original, settings)
        self.magnitude = self.settings["attention_factor"] or 0.1 * math.log(factor) + 1
        fast, slow = self.settings["beta_fast"], self.settings["beta_slow"]
        if fast < slow:
            raise ConfigurationError(
                f"--rope-scaling-settings: beta_fast must be at least beta_slow {slow}, but is "
                f"{fast}."
            )

    def frequencies(self, theta: float, width: int, length: int | Tensor = 0) -> Tensor:
        def dimension(turns: float) -> float:
            # The pair, as a real number, that makes this many turns in L.
            return width * math.log(self.original / (turns * 2 * math.pi)) / (2 * math.log(theta))

        if theta <= 1:
            raise ConfigurationError(f"yarn needs --rope-theta above 1, but it is {theta}.")
        first, last = (dimension(self.settings[name]) for name in ("beta_fast", "beta_slow"))
        if self.settings["truncate"]:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, width - 1)
        if first == last:
            last += 0.001
        pairs = torch.arange(width // 2, dtype=torch.float64)
        scaled = ((pairs - first) / (last - first)).clamp(0, 1)
        return frequencies(theta, width) * (scaled / self.factor + 1 - scaled)


@ROPE_SCALINGS.register("longrope")
class LongRope(Scaling):
    """θ/λ_d, cosines and sines times √(1 + ln s / ln L) (Ding et al. 2024).

    λ is `long_factor`, which the paper finds by search; in texts of up to L tokens
    `short_factor`, if given.
    """

    defaults: ClassVar = {"long_factor": None, "short_factor": None, "attention_factor": None}

    def __init__(self, factor: float, original: int, settings: Mapping[str, Any]):
        super().__init__(factor, original, settings)
        self.depends_on_length = self.settings["short_factor"] is not None
        derived = math.sqrt(1 + math.log(factor) / math.log(original))
        self.magnitude = self.settings["attention_factor"] or derived
        if not self.settings["long_factor"]:
            raise ConfigurationError(
                "--rope-scaling longrope needs a divisor for each frequency: "
                """--rope-scaling-settings '{"long_factor": [...]}'."""
            )

    def frequencies(self, theta: float, width: int, length: int | Tensor = 0) -> Tensor:
        for name in ("long_factor", "short_factor"):
            factors = self.settings[name]
            if factors is not None and len(factors) != width // 2:
                raise ConfigurationError(
                    f"--rope-scaling-settings: {name} must have {width // 2} numbers, one for "
                    f"each pair of the {width} rotated dimensions, but has {len(factors)}."
                )
        lengths, plain = torch.as_tensor(length), frequencies(theta, width)
        long, short = (
            (plain / torch.tensor([*factors], dtype=torch.float64)).to(lengths.device)
            for factors in (self.settings["long_factor"], self.settings["short_factor"] or [1.0])
        )
        if not self.depends_on_length:
            return long
        return torch.where(lengths <= self.original, short, long)


@ROPE_SCALINGS.register("llama3")
class Llama3(Scaling):
    """θ/s for less than `low_freq_factor` turns in L, θ for more than `high_freq_factor`.

    Between them a mean of both, weighted linearly in the number of turns (Llama team 2024).
    """

    defaults: ClassVar = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}

    def frequencies(self, theta: float, width: int, length: int | Tensor = 0) -> Tensor:
        low, high = self.settings["low_freq_factor"], self.settings["high_freq_factor"]
        if high <= low:
            raise ConfigurationError(
                f"--rope-scaling-settings: high_freq_factor must be larger than low_freq_factor "
                f"{low}, but is {high}."
            )
        plain = frequencies(theta, width)
        turns = self.original * plain / (2 * math.pi)
        kept = ((turns - low) / (high - low)).clamp(0, 1)
        return plain * ((1 - kept) / self.factor + kept)


def build_scaling(
    name: str | None,
    settings: str | Mapping[str, Any] | None,
    max_positions: int,
    factor: float | None = None,
    original: int | None = None,
) -> Scaling:
    """The scaling of that name, or without a name one that changes nothing.

    Args:
        name: of `ROPE_SCALINGS`.
        settings: JSON, as on a command line, or a mapping, as in Python.
        max_positions: longest sequence, in tokens.
        factor: s, if given.
        original: L, if given.

    Raises:
        ConfigurationError: options that the scaling does not take, or that cannot be used.
    """
    if name is None:
        if factor is not None or settings:
            raise ConfigurationError(
                "--rope-scaling-factor or --rope-scaling-settings is given, but no --rope-scaling."
            )
        return Scaling(1, 2, {})
    factor, original = factor_and_length(max_positions, factor, original)
    return ROPE_SCALINGS[name](factor, original, _read_settings(settings))


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


def _read_settings(settings: str | Mapping[str, Any] | None) -> dict[str, Any]:
    try:
        read = json.loads(settings) if isinstance(settings, str) else dict(settings or {})
    except ValueError:
        read = None
    if not isinstance(read, dict):
        raise ConfigurationError(
            f"--rope-scaling-settings must be a JSON object, but is {str(settings)[:80]!r}."
        )
    return read


def _is_positive(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and 0 < value < math.inf


def _with_larger_base(theta: float, width: int, by: float | Tensor) -> Tensor:
    if width < 4:
        raise ConfigurationError(
            f"--rope-scaling ntk and dynamic need 4 rotated dimensions, but there are {width}."
        )
    return frequencies(theta * by ** (width / (width - 2)), width)
