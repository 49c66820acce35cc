"""The goals of a GPU, and what the results say about each."""

from collections.abc import Iterable
from typing import Any

from examples.shared.markdown import NOT_RUN

#: Part -> name of a row -> its entry in the part's file.
Parts = dict[str, dict[str, dict[str, Any]]]
#: Encoding, row of the benchmarks, model that its time is divided by, highest ratio.
TIMES = (
    ("tupe_a", "32x512", "stock", 0.80),
    ("tupe_r", "32x512", "stock", 0.90),
    ("tupe_a", "32x512", "learned", 1.10),
    ("tupe_r", "32x512", "learned", 1.25),
    ("tupe_a", "8x4096", "learned", 1.15),
)
TOLD = {"stock": "stock fairseq RoBERTa", "learned": "`learned` (flash attention)"}
#: Time of a batch that is half padding, over that of a full one; half of the words would take 0.5.
PADDED = 0.6
#: Bytes of one tensor of all scores in bf16: 12 heads, 4,096 queries and keys.
SCORES = 12 * 4096**2 * 2


def judged(parts: Parts, tests: dict[str, int], is_gpu: bool) -> list[tuple[str, str, str]]:
    """Each goal with its figure and whether it was met.

    Args:
        parts: results.
        tests: number of tests by outcome, and "left".
        is_gpu: whether the results are of a GPU; otherwise nothing is judged.
    """
    found = [_tests(tests), *(_time(parts, *goal) for goal in TIMES), _memory(parts)]
    found += [_padding(parts, name) for name in ("tupe_a", "tupe_r")]
    told = {True: "met", False: "**missed**", None: NOT_RUN}
    verdicts = [(goal, figure, told[met]) for goal, figure, met in found]
    if not is_gpu:
        verdicts = [(goal, figure, "not judged") for goal, figure, _ in verdicts]
    return verdicts


def rows_of(parts: Parts, part: str, name: str) -> list[dict[str, Any]]:
    """The rows of a table of benchmarks; none if it was not run."""
    entry = parts[part].get(name, {})
    return [row for table in entry.get("tables", ()) for row in table["rows"]]


def first(rows: Iterable[dict[str, Any]], name: str) -> dict[str, Any] | None:
    """The row of an encoding with the backend that `auto` chooses, which is the first."""
    return next((row for row in rows if row["name"] == name), None)


def words_per_second(parts: Parts) -> dict[str, list[float]]:
    """Words a second by model, from all of its rows of fairseq-train."""
    found: dict[str, list[float]] = {}
    for name, entry in parts["training"].items():
        if "words_per_second" in entry:
            found.setdefault(name.rpartition(" (")[0], []).append(entry["words_per_second"])
    return found


def slower_than_best(parts: Parts) -> list[tuple[str, str, str, str]]:
    """Where `auto` is not the fastest: table, encoding, chosen and fastest backend with times."""
    found = []
    for table in parts["benchmarks"]:
        rows = rows_of(parts, "benchmarks", table)
        for name in dict.fromkeys(row["name"] for row in rows):
            own = [row for row in rows if row["name"] == name]
            best = min(own, key=lambda row: row["median_seconds"])
            if best is not own[0]:
                times = [
                    f"{r['backend']}, {1e3 * r['median_seconds']:.1f} ms" for r in (own[0], best)
                ]
                found.append((table, name, *times))
    return found


def never_best(parts: Parts) -> list[str]:
    """Backends that were measured and are the fastest of no encoding in any table."""
    best, measured = set(), set()
    for table in parts["benchmarks"]:
        rows = rows_of(parts, "benchmarks", table)
        for name in {row["name"] for row in rows}:
            own = {r["backend"]: r["median_seconds"] for r in rows if r["name"] == name}
            if len(own) > 1:
                measured |= own.keys()
                best.add(min(own, key=own.__getitem__))
    return sorted(measured - best)


def _tests(tests: dict[str, int]) -> tuple[str, str, bool | None]:
    told = ", ".join(f"{number:,} {outcome}" for outcome, number in tests.items() if number)
    met = None if tests["left"] or not tests["passed"] else not tests["failed"]
    return "all tests for GPUs pass", told or NOT_RUN, False if tests["failed"] else met


def _time(parts: Parts, name: str, table: str, over: str, most: float):
    goal = f"`{name}`, training {table}: time over {TOLD[over]} ≤ {most:.2f}"
    row = first(rows_of(parts, "benchmarks", table), name)
    if row is None or over not in row["quartiles_of_ratios"]:
        return goal, NOT_RUN, None
    low, middle, high = row["quartiles_of_ratios"][over]
    return goal, f"{middle:.2f} ({low:.2f} to {high:.2f})", middle <= most


def _memory(parts: Parts):
    goal = "`tupe_a`, training 8x4096: no tensor of all scores (H×T×T, 384 MiB)"
    rows = rows_of(parts, "benchmarks", "8x4096")
    ours, plain = first(rows, "tupe_a"), first(rows, "learned")
    if not (ours and plain and ours["peak_bytes"] and plain["peak_bytes"]):
        return goal, NOT_RUN, None
    more = ours["peak_bytes"] - plain["peak_bytes"]
    # Positions that are appended to queries and keys take memory of order B×T×C.
    return goal, f"{more / 2**20:.0f} MiB more than `learned`", more < SCORES


def _padding(parts: Parts, name: str):
    goal = f"`{name}`, training 32x512: time with half padding over that without ≤ {PADDED}"
    tables = ("32x512, half padding", "32x512")
    half, full = (first(rows_of(parts, "benchmarks", table), name) for table in tables)
    if not (half and full):
        return goal, NOT_RUN, None
    ratio = half["median_seconds"] / full["median_seconds"]
    return goal, f"{ratio:.2f}", ratio <= PADDED
