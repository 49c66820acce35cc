"""Tables in Markdown, and commands as reports show them."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
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
    low, high = form.format(values[0]), form.format(values[-1])
    return f"{form.format(median(values))} ({low} to {high})"


def shown(words: Iterable[object], places: Mapping[str, Path]) -> str:
    """A command line without absolute paths, which say more about a machine than about a run.

    A path below the repository becomes relative to it, a path in one of the `places` begins with
    that place's name, and of any other absolute path the last part remains.
    """
    return shlex.join(_relative(str(word), places) for word in words)


def _relative(word: str, places: Mapping[str, Path]) -> str:
    # The path of a run's folder may hold a "=" too.
    key, equals, value = ("", "", word) if Path(word).is_absolute() else word.partition("=")
    path = Path(value)
    if not path.is_absolute():
        return word
    for name, folder in {**places, "": ROOT}.items():
        if path.is_relative_to(folder.absolute()):
            path = Path(name, path.relative_to(folder.absolute()))
            return f"{key}{equals}{path}"
    return f"{key}{equals}{path.name}"
