"""The report in Markdown: goals, what was run, tests, tables; written after each row."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from examples.gpu import goals, machine, tests_log
from examples.gpu.goals import Parts
from examples.gpu.plan import PARTS, Row
from examples.shared.markdown import NOT_RUN, spread, table
from tupe_fairseq.files import replacing

TINY = (
    "**This run proves that the parts run. It is of a tiny size on a CPU: no figure is a result, "
    "and no goal is judged. Rows are named as on a GPU.**"
)
#: Failed tests and errors that are shown.
MOST = 30


def write_report(
    out: Path, size: str, planned: list[Row], parts: Parts, about: dict[str, str]
) -> None:
    """Write report.md.

    Args:
        out: its folder.
        size: "gpu" or "tiny".
        planned: all rows.
        parts: the results.
        about: device and versions of this call.
    """
    tests = counted(out)
    lines = ["# What a GPU says", ""]
    lines += [f"- {key}: {value}" for key, value in about.items()]
    lines += ["", *([TINY, ""] if size == "tiny" else []), "## Goals", ""]
    verdicts = goals.judged(parts, tests, size == "gpu")
    lines += [*table(("goal", "measured", "verdict"), verdicts), ""]
    lines += ["A ratio of times is the median of the rounds (their quartiles).", ""]
    for section in (_rows(planned, parts, about, tests), _tests(out), _benchmarks(parts)):
        lines += section
    lines += [*_training(parts), *_memory(planned, parts), *_study(out, parts)]
    with replacing(out / "report.md") as aside:
        aside.write_text("\n".join(lines).rstrip() + "\n")


def counted(out: Path) -> dict[str, int]:
    """Number of tests by outcome; "left" are those without one."""
    log = out / "tests.jsonl"
    found = Counter(entry["outcome"] for entry in tests_log.outcomes(log).values())
    collected = [entry["collected"] for entry in tests_log.read(log) if "collected" in entry]
    left = collected[-1] - found.total() if collected else 0
    return {name: found[name] for name in ("passed", "failed", "skipped")} | {"left": left}


def _rows(planned: list[Row], parts: Parts, about: dict[str, str], tests: dict[str, int]):
    """What was run, and each row that failed, was not run, or is of another state."""
    lines, remarks = ["## What was run", ""], []
    counts = []
    for part in PARTS:
        rows = [row for row in planned if row.part == part]
        entries = {row.name: parts[part].get(row.name) for row in rows}
        ran = [entry for entry in entries.values() if entry]
        minutes = sum(entry["wall_seconds"] for entry in ran) / 60
        counts.append((part, PARTS[part], f"{len(ran)} of {len(rows)}", f"{minutes:.1f}"))
        remarks += _left(part, [row for row in rows if row.name not in parts[part]])
        for name, entry in entries.items():
            remarks += _remark(f"{part}, {name}", entry, about) if entry else ()
    if tests["left"]:
        remarks.append(f"tests: {tests['left']:,} have not been run")
    if not any(row.part == "study" for row in planned):
        remarks.append("study: not run; it needs `--text`")
    lines += [*table(("part", "is", "rows run", "minutes"), counts), ""]
    return [*lines, *(f"- {remark}" for remark in remarks), *([""] if remarks else [])]


def _left(part: str, rows: list[Row]) -> Iterable[str]:
    """Rows without a result, by the library that they lack, if any."""
    left: dict[str, list[str]] = {}
    for row in rows:
        missing = [library for library in row.needs if not machine.has(library)]
        left.setdefault(missing[0] if missing else "", []).append(row.name)
    for library, names in left.items():
        reason = f", since {library} is not installed" if library else ""
        yield f"{part}: {NOT_RUN}{reason}: {'; '.join(names)}"


def _remark(name: str, entry: dict[str, Any], about: dict[str, str]) -> Iterable[str]:
    """What must be known of a row."""
    if entry.get("error"):
        yield f"{name}: **failed**: {entry['error']}"
    yield from (f"{name}: {left}" for left in entry.get("left_out", ()) if "memory" in left)
    expected = machine.identity(about)
    changed = [key for key, value in expected.items() if entry["about"].get(key) != value]
    if changed:
        told = ", ".join(f"{key} {entry['about'].get(key, 'none')}" for key in changed)
        yield f"{name}: of an earlier state ({told})"


def _tests(out: Path) -> list[str]:
    outcomes = tests_log.outcomes(out / "tests.jsonl")
    failed = {test: e for test, e in outcomes.items() if e["outcome"] == "failed"}
    if not failed:
        return []
    lines = ["## Failed tests", ""]
    lines += [f"- `{test}`: {entry['message']}" for test, entry in list(failed.items())[:MOST]]
    more = len(failed) - MOST
    return [*lines, *([f"- and {more} more in tests.jsonl"] if more > 0 else []), ""]


def _benchmarks(parts: Parts) -> list[str]:
    lines = []
    for name, entry in parts["benchmarks"].items():
        for found in entry.get("tables", ()):
            lines += [f"## {name}", "", f"{found['facts']}. `{entry['command']}`", ""]
            lines += [*_table(found["rows"]), ""]
    slower = goals.slower_than_best(parts)
    if slower:
        lines += ["## Where `auto` is not the fastest", ""]
        lines += [*table(("table", "encoding", "`auto`", "fastest"), slower), ""]
    if never := goals.never_best(parts):
        lines += [f"Backends that are the fastest nowhere above: {', '.join(never)}.", ""]
    return lines


def _table(rows: list[dict[str, Any]]) -> list[str]:
    """Times, their ratios with quartiles, and memory."""
    ratios = list(rows[0]["quartiles_of_ratios"])
    cells = []
    for row in rows:
        found = [spread_of(row["quartiles_of_ratios"][ratio]) for ratio in ratios]
        times = [row["name"], row["backend"], f"{1e3 * row['median_seconds']:.2f}"]
        cells.append((*times, *found, mebibytes(row["peak_bytes"])))
    return table(("", "backend", "ms", *(f"/ {ratio}" for ratio in ratios), "MiB"), cells)


def _training(parts: Parts) -> list[str]:
    speeds = goals.words_per_second(parts)
    if not speeds:
        return []
    stock = median(speeds["stock RoBERTa"]) if "stock RoBERTa" in speeds else None
    rows = [
        (name, spread(values, "{:,.0f}"), f"{median(values) / stock:.2f}" if stock else NOT_RUN)
        for name, values in speeds.items()
    ]
    told = "Words a second of fairseq-train, and of the same training of Hugging Face's RoBERTa, "
    told += "which computes its LM head for all tokens; of two runs: median (lowest to highest)."
    header = ("model", "words a second", "over stock RoBERTa")
    return ["## fairseq-train, end to end", "", told, "", *table(header, rows), ""]


def _memory(planned: list[Row], parts: Parts) -> list[str]:
    tables = {
        row.name: goals.rows_of(parts, "memory", row.name)
        for row in planned
        if row.part == "memory" and row.name in parts["memory"]
    }
    if not any(tables.values()):
        return []
    keys = dict.fromkeys((r["name"], r["backend"]) for rows in tables.values() for r in rows)
    lines = []
    for key in keys:
        found = [[r for r in rows if (r["name"], r["backend"]) == key] for rows in tables.values()]
        lines.append((*key, *(mebibytes(r[0]["peak_bytes"]) if r else "-" for r in found)))
    told = "MiB of a training step of BERT-Base by batch × tokens; -: out of memory, or failed."
    return ["## Memory", "", told, "", *table(("", "backend", *tables), lines), ""]


def _study(out: Path, parts: Parts) -> list[str]:
    if not (out / "study/report.md").exists():
        return []
    state = "complete" if any("report" in e for e in parts["study"].values()) else "not complete"
    return ["## Study", "", f"[study/report.md](study/report.md), {state}.", ""]


def spread_of(quartiles: list[float]) -> str:
    """Median and quartiles."""
    low, middle, high = quartiles
    return f"{middle:.2f} ({low:.2f}-{high:.2f})"


def mebibytes(peak: int | None) -> str:
    """Bytes as MiB; "-" where unknown."""
    return "-" if peak is None else f"{peak / 2**20:,.0f}"
