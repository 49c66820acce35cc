"""Draw the time of each model relative to stock RoBERTa, from results of benchmark_training.py.

    python scripts/plot_speed.py RESULTS.json... --out FILE.png

A panel for each device, a row for each workload of training and evaluation, and in it a point for
each model: median and quartiles over the rounds of its time over that of stock fairseq RoBERTa in
the same round. The command is written into the file's metadata.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tupe_fairseq import UsageError
from tupe_fairseq.errors import one_line_endings
from tupe_fairseq.machine import shown
from tupe_fairseq.plots import figure_class, save_png

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STOCK = "stock"
#: What the facts of a table say of its workload.
FACTS = re.compile(r"(training|evaluation), (\S+) \w+, (\d+)% padding, \d+ layers, width (\d+)")
TICKS = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3)


class Model(NamedTuple):
    """A row of the results: its name there, and how it is drawn."""

    row: str
    label: str
    color: str
    marker: str


MODELS = (
    Model("tupe_r", "tupe_r, here", "C0", "o"),
    Model("deberta", "deberta, here", "C0", "s"),
    Model("HF Roberta", "RoBERTa in transformers", "0.45", "o"),
    Model("HF DebertaV2", "DeBERTa-v2 in transformers", "0.45", "s"),
    Model("HF ModernBert", "ModernBERT in transformers", "0.45", "^"),
)
#: By device, workload and row: quartiles of the ratio to stock.
Ratios = dict[str, dict[str, dict[str, list[float]]]]


def read(files: list[Path]) -> Ratios:
    """The ratios of all files; workloads without stock RoBERTa are left out.

    Raises:
        UsageError: a file is no such result, or no workload is left.
    """
    found: Ratios = {}
    for file in files:
        try:
            results = json.loads(file.read_text(encoding="utf-8"))
            for table in results["tables"]:
                ratios = {row["name"]: row["quartiles_of_ratios"] for row in table["rows"]}
                rows = {name: each[STOCK] for name, each in ratios.items() if STOCK in each}
                if rows and (workload := FACTS.match(table["facts"])):
                    found.setdefault(results["device"], {})[label(*workload.groups())] = rows
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{str(file)!r} is no result of benchmark_training.py: {error}."
            ) from None
    if not found:
        raise UsageError("the results hold no time of stock RoBERTa; see --help.")
    return found


def label(mode: str, shape: str, padding: str, width: str) -> str:
    """The name of a workload in the figure."""
    padded = f", {padding} % padding" if padding != "0" else ""
    return f"{mode}, {shape}{padded}" + (f", width {width}" if width != "256" else "")


def draw(found: Ratios) -> "Figure":
    """The figure."""
    names = list(dict.fromkeys(name for workloads in found.values() for name in workloads))
    names.sort(key=lambda name: not name.startswith("training"))
    size = (2.2 + 4.2 * len(found), 1.7 + 0.36 * len(names))
    figure = figure_class()(figsize=size, dpi=150, layout="constrained")
    panels = figure.subplots(1, len(found), squeeze=False, sharex=True, sharey=True)[0]
    for axes, (device, workloads) in zip(panels, found.items(), strict=True):
        draw_device(axes, [workloads.get(name, {}) for name in names])
        axes.set_title(device, fontsize="medium")
    panels[0].set_yticks(range(len(names)), names)
    panels[0].set_ylim(len(names) - 0.5, -0.5)
    handles = [panels[0].plot([], [], m.marker, color=m.color, label=m.label)[0] for m in MODELS]
    figure.legend(handles=handles, loc="outside upper center", ncols=3, frameon=False)
    return figure


def draw_device(axes: Any, workloads: list[dict[str, list[float]]]) -> None:
    """A row for each workload; without models, it was not measured."""
    for height, rows in enumerate(workloads):
        if not rows:
            axes.text(1.1, height, "not measured", color="0.5", va="center", fontsize="small")
        for model in MODELS:
            if model.row in rows:
                low, middle, high = rows[model.row]
                axes.plot([low, high], [height, height], color=model.color, linewidth=2, alpha=0.4)
                axes.plot(middle, height, model.marker, color=model.color)
    axes.axvline(1, color="0.7", linewidth=1, zorder=0)
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.set_xticks(ticks := [tick for tick in TICKS if low <= tick <= high], map(str, ticks))
    axes.minorticks_off()
    axes.grid(axis="y", color="0.92")
    axes.set_axisbelow(True)
    axes.set_xlabel("time / stock fairseq RoBERTa (left is faster)")
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def main(argv: list[str] | None = None) -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, nargs="+", metavar="RESULTS.json")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.png")
    args = parser.parse_args(argv)
    command = ["python", "scripts/plot_speed.py", *(sys.argv[1:] if argv is None else argv)]
    with one_line_endings():
        save_png(draw(read(args.results)), args.out, shown(command, {}))


if __name__ == "__main__":
    main()
