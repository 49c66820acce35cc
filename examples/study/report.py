"""The report of the study.

    python -m examples.study.report DIRECTORY

Reads DIRECTORY/results.json; writes report.md and losses.png. The other figures are drawn by the
run `positions`, which needs the models.
"""

from pathlib import Path

from examples.shared import script
from examples.shared.markdown import NOT_RUN, table
from examples.shared.results import Results, read_results, rows, write_report
from examples.study import figures
from examples.study.plan import BASELINE, MODELS
from examples.study.tables import Lines, curves, glue, pretraining, title


def positions(results: Results) -> Lines:
    """Heat maps of TUPE and the four correlations of BERT-A, for the first seed."""
    lines = ["## What the models have learned about positions", ""]
    if not (found := rows(results, part="positions")):
        return [*lines, f"{NOT_RUN.capitalize()}.", ""]
    for row in found:
        if row["model"] != BASELINE:
            lines += [f"{MODELS[row['model']][0]}, seed {row['seed']}:", ""]
            lines += [f"![What positions add to the scores](heads_{row['model']}.png)", ""]
    if not (found := rows(results, part="positions", model=BASELINE)):
        return lines
    drawn = found[0]
    cells = [[name, *(f"{value:.4f}" for value in pair)] for name, pair in drawn["terms"].items()]
    return [
        *lines,
        f"{title(BASELINE)}, seed {drawn['seed']}, first layer, mean of {drawn['sequences']} "
        "held-out sequences and all heads (the paper's figure 2), all with the same colour scale:",
        "",
        "![Correlations between words and positions](terms.png)",
        "",
        "Standard deviation of each over pairs of positions, as drawn and within a sequence and "
        "head:",
        "",
        *table(["query–key", "as drawn", "within a sequence"], cells),
        "",
    ]


def report(out: Path) -> None:
    """Write the report of the results so far."""
    results = read_results(out)
    lines = ["# Position encodings in language pre-training: the paper's study", ""]
    if found := rows(results, part="text"):
        floor = found[0]["context_free"]
        losses = {model: list(curves(results, model).values()) for model in MODELS}
        figures.draw_losses(losses, out / "losses.png", results["command"], floor)
        lines += pretraining(results, floor)
    write_report(out, results, lines + glue(results) + positions(results))


if __name__ == "__main__":
    script.run_report(report)
