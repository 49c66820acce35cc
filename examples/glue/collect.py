"""The report of a sweep: the paper's table, as Markdown.

    python -m examples.glue.collect outputs/sweep

Reads outputs/sweep/results.json and writes report.md.
For each model and task: the median over the seeds for the best learning rate, which is the one
with the highest median (Ke, He, Liu, ICLR 2021, section 4.1). In brackets: that rate, the lowest
and highest score of its seeds, and their number. MNLI's mismatched set (MNLI-mm) uses the rate
that is best on the matched set.
"""

from collections import defaultdict
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

from examples.glue.tasks import TASKS
from examples.shared import script
from examples.shared.markdown import table
from examples.shared.results import read_results, rows, write_report

MISMATCHED = "MNLI-mm"
#: Columns of the table, and the metric of each.
COLUMNS = {task.name: task.metric for task in TASKS.values()} | {MISMATCHED: "accuracy"}
#: The paper, like BERT's, leaves it out of the mean.
NOT_IN_MEAN = "WNLI"
#: Scores by seed.
Scores = list[float]
#: Scores of one model in one column of the table, by learning rate.
Rates = dict[float, Scores]


class Best(NamedTuple):
    """The learning rate with the highest median, and its scores in percent."""

    rate: float
    scores: Scores

    def __str__(self) -> str:
        low = min(self.scores)
        high = max(self.scores)
        runs = f"{len(self.scores)} run{'s' * (len(self.scores) > 1)}"
        return f"**{median(self.scores):.2f}** ({self.rate:g}: {low:.2f} to {high:.2f}, {runs})"


def by_rate(results: list[dict[str, Any]]) -> dict[tuple[str, str], Rates]:
    """Scores by model and column, then by learning rate."""
    found: dict[tuple[str, str], Rates] = defaultdict(lambda: defaultdict(list))
    for line in results:
        found[line["model"], line["task"]][line["rate"]].append(line["score"])
        if (other := line["metrics"].get("mismatched_accuracy")) is not None:
            found[line["model"], MISMATCHED][line["rate"]].append(other)
    return found


def best_of(rates: Rates) -> Best:
    """The rate with the highest median; the lowest of equal ones."""
    rate = max(sorted(rates), key=lambda rate: median(rates[rate]))
    return Best(rate, rates[rate])


def bests(scores: dict[tuple[str, str], Rates]) -> dict[tuple[str, str], Best]:
    """The best rate of every model and column."""
    best = {key: best_of(rates) for key, rates in scores.items()}
    for model, column in best:
        if column == MISMATCHED:
            rate = best[model, "MNLI"].rate
            best[model, column] = Best(rate, scores[model, column][rate])
    return best


def render(results: list[dict[str, Any]]) -> str:
    """Both tables: what the paper reports, and the medians of all rates."""
    scores = by_rate(results)
    best = bests(scores)
    models = list(dict.fromkeys(line["model"] for line in results))
    columns = [column for column in COLUMNS if any((model, column) in best for model in models)]
    header = ["model", *(f"{column} ({COLUMNS[column]})" for column in columns)]
    header.append(f"mean without {NOT_IN_MEAN}" if NOT_IN_MEAN in columns else "mean")
    cells = []
    for model in models:
        found = {column: best.get((model, column)) for column in columns}
        counted = [b for column, b in found.items() if column != NOT_IN_MEAN]
        complete = counted and all(counted)
        average = f"{mean(median(b.scores) for b in counted):.2f}" if complete else "-"
        cells.append([model, *(b or "-" for b in found.values()), average])
    rates = sorted({line["rate"] for line in results})
    of_rates = []
    for model, column in ((m, c) for m in models for c in columns if (m, c) in best):
        runs = [scores[model, column].get(rate) for rate in rates]
        told = (f"{median(s):.2f} ({len(s)})" if s else "-" for s in runs)
        of_rates.append([model, column, *told])
    lines = [*table(header, cells), "", "Median (runs) of each learning rate:", ""]
    lines += table(["model", "task", *(f"{rate:g}" for rate in rates)], of_rates)
    return "\n".join(lines)


def report(out: Path) -> None:
    """Write the report of the results so far."""
    results = read_results(out)
    found = rows(results)
    lines = ["# GLUE", "", render(found) if found else "No run is complete.", ""]
    write_report(out, results, lines)


if __name__ == "__main__":
    script.run_report(report)
