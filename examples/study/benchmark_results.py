"""What the report of the benchmark reads from its results: final losses, and their intervals."""

from collections.abc import Sequence
from math import inf, isnan
from statistics import mean
from typing import Any, NamedTuple

from examples.shared.results import Results, rows
from examples.study.measures import Difference, difference, reaching
from examples.study.training import final_loss, losses_of

#: Bits below the final loss of `none` at which a model has left its plateau.
LEFT = 0.3


class Final(NamedTuple):
    """The completed runs of an encoding at full length.

    Attributes:
        rows: settings and results, one for each seed.
        losses: after the last update, by seed.
    """

    rows: list[dict[str, Any]]
    losses: dict[int, float]

    @property
    def loss(self) -> float:
        """Mean over the seeds."""
        return mean(self.losses.values())


#: By encoding.
Finals = dict[str, Final]


def finals(results: Results, size: str) -> Finals:
    """The completed runs of a size at full length."""
    found: Finals = {}
    for row in rows(results, part=f"final, {size}"):
        own = found.setdefault(row["encoding"], Final([], {}))
        own.rows.append(row)
        own.losses[row["seed"]] = final_loss(row)
    return found


def by_loss(found: Finals) -> Finals:
    """The lowest mean loss first."""
    return dict(sorted(found.items(), key=lambda item: item[1].loss))


def by_rate(results: Results, size: str) -> dict[str, dict[float, float]]:
    """Final loss on the shorter schedule, by encoding and learning rate."""
    found: dict[str, dict[float, float]] = {}
    for row in rows(results, part=f"rates, {size}"):
        found.setdefault(row["encoding"], {})[row["lr"]] = final_loss(row)
    return {name: dict(sorted(losses.items())) for name, losses in found.items()}


def best_rate(losses: dict[float, float]) -> float:
    """The learning rate with the lowest loss; a diverged training has NaN, and counts as last."""
    return min(losses, key=lambda rate: (isnan(losses[rate]), losses[rate]))


def plateau(found: Finals, name: str) -> str:
    """The share of the updates after which the plateau ends, in percent, by seed."""
    floor = found["none"].loss - LEFT
    curves = [losses_of(row) for row in found[name].rows]
    ends = [(reaching(curve, floor) or inf) / max(curve) for curve in curves]
    return ", ".join(f"{end:.0%}" if end < inf else "never" for end in ends)


def times(results: Results, size: str) -> dict[str, list[float]]:
    """Time of an update relative to `learned`, by encoding: of each round, in order of size."""
    seconds: dict[str, dict[int, float]] = {}
    for row in rows(results, part=f"time, {size}"):
        seconds.setdefault(row["encoding"], {})[row["seed"]] = row["seconds"]
    learned = seconds.get("learned", {})
    return {
        name: sorted(own[each] / learned[each] for each in own.keys() & learned.keys())
        for name, own in seconds.items()
        if own.keys() & learned.keys()
    }


def growth(found: Final, way: str = "") -> Difference:
    """Loss at 16 times the trained length minus that at it, without further training.

    Args:
        found: the runs of an encoding.
        way: a change of the model that reads the longer text, or none.
    """
    means = [row["longer"][way]["mean"] for row in found.rows]
    return difference([each["16"] - each["1"] for each in means])


def paired(one: dict[int, float], other: dict[int, float]) -> list[float]:
    """One minus other, of each shared seed."""
    return [one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())]


def shares(found: Finals) -> dict[str, dict[str, float]]:
    """Accuracy on BLiMP by encoding and phenomenon, mean over the seeds; empty if one lacks it."""
    if not all("blimp" in row for own in found.values() for row in own.rows):
        return {}
    measured = {
        name: [row["blimp"]["phenomena"] for row in own.rows] for name, own in found.items()
    }
    return {
        name: {key: mean(row[key] for row in own) for key in own[0]}
        for name, own in measured.items()
    }


def with_interval(values: Sequence[float], digits: int) -> str:
    """Mean ± half the width of its 95 % interval."""
    return difference(values).plain(digits).removeprefix("+")
