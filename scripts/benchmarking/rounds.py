"""Times of the ways to serve a model, all measured in turn in every round."""

import statistics
import time
from functools import partial
from typing import Any

from tqdm import tqdm

from . import fidelity
from .compare import quartiles_of_ratios, seconds_of
from .encoders import Batch, Run
from .ways import REFERENCE

#: Seconds before each way. Without it, single batches of the next take up to five times as long.
PAUSE = 0.1
#: What tells the seconds: those that pass, or those in which this process computes.
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
#: A row of results.
Row = dict[str, Any]


def measure(
    runs: dict[str, Run | str], batches: list[Batch], rounds: int, clock: str = "wall"
) -> dict[str, Any]:
    """The rows of a table, and why ways are missing.

    Args:
        runs: by name, or why they are missing.
        batches: what each of them runs in a round.
        rounds: how many.
        clock: of `CLOCKS`.
    """
    missing = {name: run for name, run in runs.items() if isinstance(run, str)}
    able = {name: run for name, run in runs.items() if not isinstance(run, str)}
    expected = [able[REFERENCE](batch) for batch in batches]
    of_texts = fidelity.vectors(able[REFERENCE], batches)
    found: dict[str, dict[str, Any]] = {}
    for name, run in list(able.items()):
        # It warms up, too.
        try:
            difference = max(map(partial(_difference, run), batches, expected))
            cosines = fidelity.measure(run, batches, of_texts)
            found[name] = {"difference": difference, "cosines": cosines}
        # Runtimes raise errors of any type.
        except Exception as error:
            missing[name] = f"{type(error).__name__}: {error}".partition("\n")[0]
            del able[name]
    seconds = _seconds(able, batches, rounds, clock)
    texts = sum(len(batch["input_ids"]) for batch in batches)
    rows = [_row(name, of_way, texts) | found[name] for name, of_way in seconds.items()]
    compare(rows)
    return {"rows": rows, "missing": missing}


def _difference(run: Run, batch: Batch, expected: Any) -> float:
    """The largest at tokens."""
    shown = batch["attention_mask"].bool()
    return float((run(batch).float() - expected)[shown].abs().max())


def _seconds(
    runs: dict[str, Run], batches: list[Batch], rounds: int, clock: str
) -> dict[str, list[list[float]]]:
    """Of each batch in each round; each round begins with another way."""
    names = list(runs)
    seconds: dict[str, list[list[float]]] = {name: [] for name in names}
    for number in tqdm(range(rounds), "rounds", leave=False, disable=None):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            run = runs[name]
            # Threads of the way before spin on the cores for a while.
            time.sleep(PAUSE)
            run(batches[0])
            steps = (partial(run, batch) for batch in batches)
            seconds[name].append([seconds_of(step, "cpu", CLOCKS[clock]) for step in steps])
    return seconds


def _row(name: str, seconds: list[list[float]], texts: int) -> Row:
    every = [each for of_round in seconds for each in of_round]
    totals = [sum(of_round) for of_round in seconds]
    # A single measurement is its own percentile.
    last = statistics.quantiles(every * 2 if len(every) == 1 else every, n=20, method="inclusive")
    return {
        "name": name,
        "precision": name.rpartition("-")[2],
        "is_ours": name.startswith("ours-"),
        "median_seconds": statistics.median(every),
        "percentile_95_seconds": last[-1],
        "texts_per_second": texts / statistics.median(totals),
        "seconds": totals,
    }


def compare(rows: list[Row]) -> None:
    """Add the ratios to transformers and to the best rival, the fastest of the same precision."""
    reference = next(row for row in rows if row["name"] == REFERENCE)
    for row in rows:
        rivals = [r for r in rows if r["precision"] == row["precision"] and not r["is_ours"]]
        best = min(rivals, key=lambda r: statistics.median(r["seconds"]), default=None)
        row["best_rival"] = best and best["name"]
        others = {"transformers": reference} | ({"best": best} if best else {})
        row["quartiles_of_ratios"] = {
            name: quartiles_of_ratios(row["seconds"], other["seconds"])
            for name, other in others.items()
        }


def table(rows: list[Row]) -> list[list[str]]:
    """The rows as text, after a row of headings."""
    heads = [
        "",
        "precision",
        "ms",
        "95 %",
        "texts/s",
        "/ transformers",
        "/ best",
        "cosine",
        "alone",
    ]
    return [heads, *map(_cells, rows)]


def _cells(row: Row) -> list[str]:
    ratios = []
    for name in ("transformers", "best"):
        low, middle, high = (
            f"{each:.2f}" for each in row["quartiles_of_ratios"].get(name, [0] * 3)
        )
        ratios.append(middle if low == middle == high else f"{middle} ({low}-{high})")
    return [
        row["name"],
        row["precision"],
        *(f"{row[key] * 1e3:.2f}" for key in ("median_seconds", "percentile_95_seconds")),
        f"{row['texts_per_second']:.0f}",
        *ratios,
        *(cosines(row, name) for name in ("source", "alone")),
    ]


def cosines(row: Row, name: str) -> str:
    """The mean cosine of this name, and the least."""
    found = row["cosines"].get(name)
    return "{:.4f} ({:.4f})".format(*found) if found else ""
