"""The report of compare_encodings.py.

    python -m examples.study.comparison DIRECTORY

Reads DIRECTORY/results.json; writes report.md and losses.png.
"""

from pathlib import Path

from examples.shared import markdown, script
from examples.shared.markdown import NOT_RUN
from examples.shared.results import Results, missing, read_results, rows, write_report
from examples.study.figures import draw_losses
from examples.study.measures import Curve
from examples.study.training import final_loss, losses_of

BASELINE = "learned"


def table(results: Results) -> list[str]:
    """Encoding, parameters, loss and speed, the lowest loss first."""
    found = sorted(rows(results), key=final_loss)
    base = {row["seed"]: row["seconds"] for row in found if row["encoding"] == BASELINE}
    cells = []
    for row in found:
        times = base.get(row["seed"]), row["seconds"]
        speed = f"{times[0] / times[1]:.2f}" if all(times) else NOT_RUN
        size = f"{row['parameters']:,}"
        cells.append([f"`{row['encoding']}`", row["seed"], size, f"{final_loss(row):.3f}", speed])
    cells += [[f"`{each['encoding']}`", each["seed"], *3 * [NOT_RUN]] for each in missing(results)]
    return markdown.table(["encoding", "seed", "parameters", "loss", "speed"], cells)


def report(out: Path) -> None:
    """Write the report of the results so far."""
    results = read_results(out)
    plan = results["plan"]
    settings = (
        f"{plan['arch']}, {plan['batch_size']} × {plan['tokens_per_sample']} tokens per update, "
        f"{plan['updates']:,} updates, lr {plan['lr']:g}"
    )
    lines = [
        *("# Encodings on the same text", ""),
        f"{settings}. Loss: bits per masked token of held-out text after the last update. Speed: "
        f"time per update of `{BASELINE}` divided by that of the encoding (processor time; "
        "wall-clock time on a GPU).",
        *("", *table(results), ""),
    ]
    if found := rows(results):
        curves: dict[str, list[Curve]] = {}
        for row in found:
            curves.setdefault(row["encoding"], []).append(losses_of(row))
        draw_losses(curves, out / "losses.png", results["command"])
        lines += ["![Validation loss against updates](losses.png)", ""]
    write_report(out, results, lines)


if __name__ == "__main__":
    script.run_report(report)
