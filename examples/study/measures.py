"""Measures of the studies: updates needed for a loss, differences and their noise."""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import mean, stdev
from typing import NamedTuple

from scipy import stats

#: Of the confidence intervals.
CONFIDENCE = 0.95
#: Loss by number of updates.
Curve = dict[int, float]


def reaching(curve: Curve, target: float) -> float | None:
    """The first update with a loss of at most `target`, interpolated between validations.

    Returns:
        None if there is none.
    """
    points = sorted(curve.items())
    if points and points[0][1] <= target:
        return float(points[0][0])
    for (before, high), (after, low) in pairwise(points):
        if low <= target:
            return before + (after - before) * (high - target) / (high - low)
    return None


def band(curves: Sequence[Curve]) -> list[tuple[int, float, float, float]]:
    """Update, mean, lowest and highest loss, at the updates of all curves."""
    shared = set.intersection(*map(set, curves)) if curves else set()
    losses = [(update, [curve[update] for curve in curves]) for update in sorted(shared)]
    return [(update, mean(these), min(these), max(these)) for update, these in losses]


class Difference(NamedTuple):
    """A mean over seeds, and half the width of its confidence interval (None for one seed)."""

    mean: float
    half_width: float | None

    @property
    def is_noise(self) -> bool:
        """Whether the interval contains 0, or is unknown."""
        return self.half_width is None or abs(self.mean) <= self.half_width

    def plain(self, digits: int) -> str:
        """With its sign, and its interval if it has one."""
        said = f"{self.mean:+.{digits}f}"
        return said if self.half_width is None else f"{said} ± {self.half_width:.{digits}f}"

    def written(self, digits: int) -> str:
        """With its interval; bold unless it is noise."""
        said = self.plain(digits)
        if self.half_width is None:
            return f"{said} (one seed)"
        return f"{said} (noise)" if self.is_noise else f"**{said}**"


def difference(values: Sequence[float]) -> Difference:
    """The mean of a difference for each seed, and its confidence interval (Student's t)."""
    if len(values) < 2:
        return Difference(mean(values), None)
    quantile = (1 + CONFIDENCE) / 2
    half_width = stats.t.ppf(quantile, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return Difference(mean(values), half_width)


def without_model(metric: str, train: Sequence[str], valid: Sequence[str]) -> float:
    """Score in percent of a constant answer: the most frequent label, or any number."""
    if metric != "accuracy":
        return 0.0
    answer = Counter(train).most_common(1)[0][0]
    return 100 * sum(label == answer for label in valid) / len(valid)
