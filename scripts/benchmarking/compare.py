"""Time and peak memory of the rows of a table, all measured in turn in every round."""

import ctypes
import random
import re
import statistics
import sys
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
    """A table.

    Attributes:
        title: above the table.
        facts: what is measured.
        prepare: makes the step that is measured of a row.
        contenders: the rows.
        references: rows by whose times others are divided, by heading; memory by the first.
        rounds: how many.
        seconds: of each row in each round.
        peaks: bytes, or None where unknown.
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
        """Run all rounds; the measurement of memory warms up. An interruption drops its round."""
        progress = partial(tqdm, leave=False, disable=None, unit="step")
        steps: dict[Contender, Step] = {}
        for contender in list(self.contenders):
            try:
                steps[contender] = self.prepare(contender)
            except torch.OutOfMemoryError:
                self._leave_out(contender)
        for contender in progress(list(steps), "memory"):
            try:
                self.peaks[contender] = peak_memory(steps[contender], device)
            except torch.OutOfMemoryError:
                del steps[contender]
                self._leave_out(contender)
        shuffled = list(steps)
        order = random.Random(1)
        for _ in progress(range(self.rounds), "rounds"):
            order.shuffle(shuffled)
            found = {contender: seconds_of(steps[contender], device) for contender in shuffled}
            for contender, seconds in found.items():
                self.seconds.setdefault(contender, []).append(seconds)

    def _leave_out(self, contender: Contender) -> None:
        """Go on without a row that needs more memory than the device has."""
        self.contenders.remove(contender)
        self.references = {h: each for h, each in self.references.items() if each != contender}
        told = f"left out: {contender.name} with {contender.backend}: out of memory"
        print(told, file=sys.stderr)
        torch.cuda.empty_cache()

    def described(self) -> str:
        """The facts, with the number of complete rounds."""
        return f"{self.facts}, {min(map(len, self.seconds.values()))} of {self.rounds} rounds"

    def ratios(self, contender: Contender, reference: Contender) -> list[float]:
        """Lower quartile, median and upper quartile of the rounds' ratios."""
        return quartiles_of_ratios(self.seconds[contender], self.seconds[reference])

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
        """The rows as text, after a row of headings."""
        headings = [f"/ {heading}" for heading in self.references]
        first = [f"MiB {heading}" for heading in headings[:1]]
        units = [self.peaks[reference] for reference in self.references.values()][:1]
        rows = [["", "backend", "ms", *headings, "MiB", *first]]
        for row in self.results():
            peak = row["peak_bytes"]
            cells = [row["name"], row["backend"], f"{row['median_seconds'] * 1e3:.1f}"]
            for quartiles in row["quartiles_of_ratios"].values():
                low, middle, high = (f"{value:.2f}" for value in quartiles)
                cells.append(middle if low == middle == high else f"{middle} ({low}-{high})")
            cells.append(f"{peak / 2**20:.0f}" if peak else "-")
            cells += [f"{peak / unit:.2f}" if peak and unit else "-" for unit in units]
            rows.append(cells)
        return rows


def quartiles_of_ratios(ours: list[float], theirs: list[float]) -> list[float]:
    """Lower quartile, median and upper quartile of the ratios of two rows, round by round."""
    found = [a / b for a, b in zip(ours, theirs, strict=True)]
    return statistics.quantiles(found * 2 if len(found) == 1 else found, method="inclusive")


def seconds_of(step: Step, device: str, now: Callable[[], float] = time.perf_counter) -> float:
    """Time of one step by the clock `now`, until the device has completed it."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    wait()
    start = now()
    step()
    wait()
    return now() - start


def peak_memory(step: Step, device: str) -> int | None:
    """Most bytes that a step holds beyond those held before it; None if unknown.

    On a CPU this is resident memory, whose maximum Linux resets on request; before that, glibc
    returns what was freed.
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
    status = Path("/proc/self/status").read_text()
    return int(re.search(rf"{kind}:\s+(\d+) kB", status)[1]) * 1024
