"""The table of a sweep as the paper makes it, as Markdown.

    python examples/glue/collect.py outputs/sweep/results.jsonl

For each model and task: the median over the seeds of every learning rate, and the best of these
medians (Ke, He, Liu, ICLR 2021, section 4.1). Behind it the learning rate, the lowest and highest
score of its seeds, and how many there are. MNLI's mismatched set (MNLI-mm) goes by the rate that
is best on the matched one.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

from examples.glue.results import read_results
from examples.glue.tasks import TASKS

MISMATCHED = "MNLI-mm"
#: Columns of the table, and the metric of each.
COLUMNS = {task.name: task.metric for task in TASKS.values()} | {MISMATCHED: "accuracy"}
#: The paper leaves it out (as BERT's did), so its mean is of the other columns.
NOT_IN_MEAN = "WNLI"
#: What a line of results has at least.
KEYS = {"model", "task", "rate", "score", "metrics"}
#: Scores by seed.
Scores = list[float]
#: Scores of one model on one column of the table, by learning rate.
Rates = dict[float, Scores]


class Best(NamedTuple):
    """The learning rate with the highest median, and its scores in percent."""

    rate: float
    scores: Scores

    def __str__(self) -> str:
        low, high = min(self.scores), max(self.scores)
        runs = f"{len(self.scores)} run{'s' * (len(self.scores) > 1)}"
        return f"**{median(self.scores):.2f}** ({self.rate:g}: {low:.2f} to {high:.2f}, {runs})"


def by_rate(results: list[dict[str, Any]]) -> dict[tuple[str, str], Rates]:
    """Scores by model and column, then by learning rate."""
    table: dict[tuple[str, str], Rates] = defaultdict(lambda: defaultdict(list))
    for line in results:
        table[line["model"], line["task"]][line["rate"]].append(line["score"])
        if (other := line["metrics"].get("mismatched_accuracy")) is not None:
            table[line["model"], MISMATCHED][line["rate"]].append(other)
    return table


def best_of(rates: Rates) -> Best:
    """The rate with the highest median; of equal ones the lowest."""
    rate = max(sorted(rates), key=lambda rate: median(rates[rate]))
    return Best(rate, rates[rate])


def bests(table: dict[tuple[str, str], Rates]) -> dict[tuple[str, str], Best]:
    """The best rate of every model and column."""
    best = {key: best_of(rates) for key, rates in table.items()}
    for model, column in best:
        if column == MISMATCHED:
            rate = best[model, "MNLI"].rate
            best[model, column] = Best(rate, table[model, column][rate])
    return best


def row(cells: list[str]) -> str:
    """A line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def render(results: list[dict[str, Any]]) -> str:
    """Both tables: what the paper reports, and the medians of all rates."""
    table = by_rate(results)
    best = bests(table)
    models = list(dict.fromkeys(line["model"] for line in results))
    columns = [column for column in COLUMNS if any((model, column) in best for model in models)]
    metrics = [f"{column} ({COLUMNS[column]})" for column in columns]
    heading = f"mean without {NOT_IN_MEAN}" if NOT_IN_MEAN in columns else "mean"
    lines = [row(["model", *metrics, heading]), row(["---"] * (len(columns) + 2))]
    for model in models:
        found = [best.get((model, column)) for column in columns]
        counted = [b for b, column in zip(found, columns, strict=True) if column != NOT_IN_MEAN]
        whole = counted and all(counted)
        average = f"{mean(median(b.scores) for b in counted):.2f}" if whole else "-"
        lines.append(row([model, *(str(b) if b else "-" for b in found), average]))
    rates = sorted({line["rate"] for line in results})
    lines += ["", "Median (runs) of each learning rate:", ""]
    lines += [row(["model", "task", *(f"{rate:g}" for rate in rates)])]
    lines += [row(["---"] * (len(rates) + 2))]
    for model in models:
        for column in (c for c in columns if (model, c) in best):
            scores = [table[model, column].get(rate) for rate in rates]
            cells = [f"{median(s):.2f} ({len(s)})" if s else "-" for s in scores]
            lines.append(row([model, column, *cells]))
    return "\n".join(lines)


def main(path: str) -> None:
    """See the module's text."""
    try:
        results = read_results(Path(path))
    except json.JSONDecodeError as error:
        sys.exit(f"error: {path} holds a line that is no JSON: {error.doc[:60]!r}.")
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"error: cannot read {path}: {error}")
    if not results:
        sys.exit(f"error: {path} holds no results.")
    for line in results:
        if not isinstance(line, dict) or not line.keys() >= KEYS:
            begin = json.dumps(line)[:60]
            sys.exit(f"error: {path} holds a line that is no result of a sweep: {begin!r}.")
    print(render(results))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("error: one argument is needed: the results.jsonl of a sweep.")
    main(sys.argv[1])
