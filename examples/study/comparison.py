"""The report of compare_encodings.py.

    python -m examples.study.comparison DIRECTORY

Reads DIRECTORY/results.json; writes report.md and losses.png.
"""

from pathlib import Path
from typing import Any

from examples.shared import markdown, script
from examples.shared.markdown import NOT_RUN
from examples.shared.results import (
    Results,
    missing,
    read_results,
    report_main,
    rows,
    what_ran,
    write_report,
)
from examples.study.training import losses_of
from tupe_fairseq.plots import figure_class, save_png

BASELINE = "learned"


def final_loss(row: dict[str, Any]) -> float:
    """Validation loss after the last update."""
    losses = losses_of(row)
    return losses[max(losses)]


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
        curves = {f"{row['encoding']}, seed {row['seed']}": losses_of(row) for row in found}
        draw(curves, settings, out / "losses.png", results["command"])
        lines += ["![Validation loss against updates](losses.png)", ""]
    write_report(out, lines + what_ran(results))


def draw(curves: dict[str, dict[int, float]], settings: str, out: Path, command: str) -> None:
    """Loss curves of all encodings; the legend is in the order of their ends."""
    figure = figure_class()(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    names = sorted(curves)
    for i, name in enumerate(sorted(curves, key=lambda n: -list(curves[n].values())[-1])):
        style = ("-", "--", ":")[names.index(name) // 10 % 3]
        colour = f"C{names.index(name) % 10}"
        losses = curves[name]
        axes.plot(losses.keys(), losses.values(), style, color=colour, label=name, zorder=i)
    axes.set(xlabel="updates", ylabel="validation loss (bits per masked token)")
    axes.set_title(settings, fontsize=8, wrap=True)
    handles, labels = axes.get_legend_handles_labels()
    place = {"loc": "center left", "bbox_to_anchor": (1, 0.5), "frameon": False}
    axes.legend(handles[::-1], labels[::-1], **place)
    axes.spines[["top", "right"]].set_visible(False)
    save_png(figure, out, command)


if __name__ == "__main__":
    script.run(lambda: report_main(report))
