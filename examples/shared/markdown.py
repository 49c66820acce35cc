"""Tables in Markdown."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NOT_RUN = "not run"


def table(header: Sequence[str], rows: Iterable[Iterable[Any]]) -> list[str]:
    """The lines of a table."""
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(map(str, line))} |" for line in lines]


def spread(values: Iterable[float], form: str = "{:.2f}") -> str:
    """Median (lowest to highest); one value alone; NOT_RUN without values."""
    values = sorted(values)
    if len(values) < 2:
        return form.format(values[0]) if values else NOT_RUN
    low = form.format(values[0])
    high = form.format(values[-1])
    return f"{form.format(median(values))} ({low} to {high})"
