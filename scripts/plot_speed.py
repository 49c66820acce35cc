"""Draw the time of each model relative to stock RoBERTa, from results of benchmark_training.py.

    python scripts/plot_speed.py RESULTS.json... --out FILE.png

A panel for each device, a row for each workload of training and evaluation, and in it a point for
each model: median and quartiles over the rounds of its time over that of stock fairseq RoBERTa in
the same round. The command is written into the file's metadata.
"""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarking import figures

from tupe_fairseq import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STOCK = "stock"
#: What the facts of a table say of its workload.
FACTS = re.compile(r"(training|evaluation), (\S+) \w+, (\d+)% padding, \d+ layers, width (\d+)")


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
    figure, panels = figures.panels(len(found), (2.2 + 4.2 * len(found), 1.7 + 0.36 * len(names)))
    for axes, (device, workloads) in zip(panels, found.items(), strict=True):
        draw_device(axes, [workloads.get(name, {}) for name in names])
        figures.finish(axes, device, "stock fairseq RoBERTa")
    figures.name_rows(panels[0], names)
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
                figures.ratio(axes, height, rows[model.row], model.marker, color=model.color)


def main(argv: list[str] | None = None) -> None:
    """See the module's docstring."""
    told = __doc__.splitlines()[0]
    figures.save("plot_speed.py", told, lambda files: draw(read(files)), argv, nargs="+")


if __name__ == "__main__":
    main()
