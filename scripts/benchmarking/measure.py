"""How the benchmarks measure: all by turns in every round, and the peak of memory.

`benchmark_training.py` and `benchmark_attention.py` say what is measured.
"""

from __future__ import annotations

import ctypes
import random
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tqdm import tqdm

Step = Callable[[], object]


class Contender(NamedTuple):
    """A row of a table."""

    name: str
    backend: str


@dataclass
class Case:
    """What one table compares.

    Attributes:
        title: above the table.
        facts: what is measured.
        prepare: makes what a contender does in a round.
        contenders: the rows.
        references: what times are divided by, by heading; memory by the first.
        rounds: how many.
        seconds: of each contender in each round.
        peaks: bytes.
    """

    title: str
    facts: str
    prepare: Callable[[Contender], Step]
    contenders: list[Contender]
    references: dict[str, Contender]
    rounds: int
    seconds: dict[Contender, list[float]] = field(default_factory=dict)
    peaks: dict[Contender, int | None] = field(default_factory=dict)

    def measure(self, device: str) -> None:
        """Run all rounds, warmed up by the measurement of memory.

        What an interruption leaves is whole rounds.
        """
        torch.manual_seed(1)
        progress = partial(tqdm, leave=False, disable=None)
        steps = {contender: self.prepare(contender) for contender in self.contenders}
        for contender in progress(steps, "memory"):
            self.peaks[contender] = peak_memory(steps[contender], device)
        shuffled, order = list(steps), random.Random(1)
        for _ in progress(range(self.rounds), "rounds"):
            order.shuffle(shuffled)
            found = {contender: seconds_of(steps[contender], device) for contender in shuffled}
            for contender, seconds in found.items():
                self.seconds.setdefault(contender, []).append(seconds)

    def ratios(self, contender: Contender, reference: Contender) -> list[float]:
        """Lower quartile, median and upper quartile of the ratios in each round."""
        pairs = zip(self.seconds[contender], self.seconds[reference], strict=True)
        found = [ours / theirs for ours, theirs in pairs]
        return statistics.quantiles(found * 2 if len(found) == 1 else found, method="inclusive")

    def results(self) -> list[dict[str, Any]]:
        """The rows, for JSON."""
        return [
            {
                **contender._asdict(),
                "median_seconds": statistics.median(self.seconds[contender]),
                "quartiles_of_ratios": {
                    heading: self.ratios(contender, reference)
                    for heading, reference in self.references.items()
                },
                "peak_bytes": self.peaks[contender],
                "seconds": self.seconds[contender],
            }
            for contender in self.contenders
        ]

    def table(self) -> list[list[str]]:
        """The rows, for readers, and a first one of headings."""
        first = next(iter(self.references))
        reference_peak = self.peaks[self.references[first]]
        ratios = [f"/ {heading}" for heading in self.references]
        rows = [["", "backend", "ms", *ratios, "MiB", f"MiB / {first}"]]
        for row in self.results():
            quartiles = row["quartiles_of_ratios"].values()
            peak = row["peak_bytes"]
            rows.append(
                [
                    *(row["name"], row["backend"], f"{row['median_seconds'] * 1e3:.1f}"),
                    *map(spread, quartiles),
                    *(of_memory(peak, 2**20, 0), of_memory(peak, reference_peak, 2)),
                ]
            )
        return rows


def spread(quartiles: list[float]) -> str:
    """The median, and the others where they are not the same."""
    low, middle, high = (f"{value:.2f}" for value in quartiles)
    return middle if low == middle == high else f"{middle} ({low}-{high})"


def of_memory(peak: int | None, unit: int | None, digits: int) -> str:
    """Bytes in that unit, where both are known."""
    return f"{peak / unit:.{digits}f}" if peak and unit else "-"


def seconds_of(step: Step, device: str) -> float:
    """Time of one step, until the device has done it."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    step()
    wait()
    return time.perf_counter() - start


def peak_memory(step: Step, device: str) -> int | None:
    """Most bytes that a step holds beyond what was held before, or None where that is not known.

    On a CPU it is resident memory, whose maximum Linux sets back when asked; before, glibc gives
    back what was freed.
    """
    step()
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        return torch.cuda.max_memory_allocated() - before
    try:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    except (OSError, AttributeError):
        return None
    before = _resident("VmRSS")
    step()
    return _resident("VmHWM") - before


def _resident(kind: str) -> int:
    """A line of /proc/self/status, in bytes."""
    kilobytes = re.search(rf"{kind}:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]
    return int(kilobytes) * 1024
