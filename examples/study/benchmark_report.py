"""The report of benchmark.py.

    python -m examples.study.benchmark_report DIRECTORY

Reads DIRECTORY/results.json and writes report.md.
"""

from pathlib import Path
from typing import Any

from examples.shared import script
from examples.shared.markdown import NOT_RUN, table
from examples.shared.results import Results, missing, read_results, rows, write_report
from examples.study.measures import reaching
from examples.study.training import losses_of

#: Bits below the loss of word frequencies alone at which a model has left its plateau.
LEFT = 0.5


def baseline(results: Results) -> list[str]:
    """Each departure from the base: loss by update, and the update that ends the plateau."""
    found = rows(results, part="baseline")
    lines = ["## A strong baseline", ""]
    if not found:
        return [*lines, "Not run.", ""]
    updates = results["plan"]["pilot"]["updates"]
    shown = [updates // 5 * k for k in range(1, 6)]
    cells = [_baseline_row(row, shown, results["plan"].get("unigram")) for row in found]
    for each in missing(results, part="baseline"):
        cells.append([f"`{each['encoding']}`", each["setting"], *([NOT_RUN] * (len(shown) + 1))])
    heads = ["encoding", "setting", *(f"{update:,}" for update in shown), "plateau ends"]
    return [*lines, *table(heads, cells), ""]


def _baseline_row(row: dict[str, Any], shown: list[int], unigram: float | None) -> list[str]:
    curve = losses_of(row)
    end = reaching(curve, unigram - LEFT) if unigram else None
    return [
        f"`{row['encoding']}`",
        row["setting"],
        *(f"{curve[update]:.3f}" for update in shown),
        f"{end:.0f}" if end else "not",
    ]


def report(out: Path) -> None:
    """Write the report of the results so far."""
    results = read_results(out)
    write_report(out, results, ["# Benchmark of position encodings", "", *baseline(results)])


if __name__ == "__main__":
    script.run_report(report)
