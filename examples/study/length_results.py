"""Which models of length.py hold at longer texts."""

from statistics import mean
from typing import Any

from examples.study.length_measures import FACTORS

#: Bits by which the loss at the longest length may exceed that at the trained one: a model with at
#: most the first holds, with more than the second it breaks.
HOLDS, BREAKS = 0.05, 0.5
#: What `length_measures.measure` returns, by name of the model (an encoding, and perhaps a scaling
#: or a window) and seed.
Found = dict[str, dict[int, dict[str, Any]]]
#: Results of the algorithmic tasks by task and encoding.
Solved = dict[str, dict[str, list[dict[str, Any]]]]


def growth(runs: dict[int, dict[str, Any]]) -> dict[int, float]:
    """Loss at each factor minus that at the trained length, mean over seeds."""
    return {
        k: mean(run["mean"][str(k)] - run["mean"]["1"] for run in runs.values()) for k in FACTORS
    }


def verdict(change: float) -> str:
    """What the growth at the longest length means."""
    return "holds" if change <= HOLDS else "breaks" if change > BREAKS else "degrades"
