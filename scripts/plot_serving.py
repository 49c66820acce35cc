"""Draw the time of our ways to serve a model relative to the best rival's.

    python scripts/plot_serving.py RESULTS.json --out FILE.png

RESULTS.json is that of benchmark_serving.py. A panel for each model, a row for each of its tables,
and in it a point for each precision: median and quartiles over the rounds of the time of our
fastest way over that of the fastest rival of the same precision in the same round. Points are
empty where our fastest way is a program in ONNX. The command is written into the file's metadata.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tupe_fairseq import UsageError
from tupe_fairseq.errors import one_line_endings
from tupe_fairseq.machine import shown
from tupe_fairseq.plots import figure_class, save_png

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = {"fp32": "C0", "bf16": "C1", "int8": "C2"}
TICKS = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5)
#: By title of a table and precision: our fastest row.
Tables = dict[str, dict[str, dict[str, Any]]]


def read(file: Path) -> dict[str, Tables]:
    """The tables of each model that have one of our ways and a rival.

    Raises:
        UsageError: the file is no such result, or no table is left.
    """
    found: dict[str, Tables] = {}
    try:
        models = json.loads(file.read_text(encoding="utf-8"))["models"]
        for model, tables in models.items():
            for title, table in tables.items():
                rows = [r for r in table.get("rows", ()) if r["is_ours"] and r["best_rival"]]
                # The last row of a precision stays: the fastest.
                rows.sort(key=lambda row: -statistics.median(row["seconds"]))
                if rows:
                    best = {row["precision"]: row for row in rows}
                    found.setdefault(model, {})[title] = best
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{str(file)!r} is no result of benchmark_serving.py: {error}.") from None
    if not found:
        raise UsageError(f"{str(file)!r} holds no time of ours beside a rival's.")
    return found


def draw(found: dict[str, Tables]) -> "Figure":
    """The figure."""
    titles = list(dict.fromkeys(title for tables in found.values() for title in tables))
    size = (2.6 + 3.2 * len(found), 1.3 + 0.4 * len(titles))
    figure = figure_class()(figsize=size, dpi=150, layout="constrained")
    panels = figure.subplots(1, len(found), squeeze=False, sharex=True, sharey=True)[0]
    for axes, (model, tables) in zip(panels, found.items(), strict=True):
        for height, title in enumerate(titles):
            draw_table(axes, height, tables.get(title, {}))
        axes.set_title(model, fontsize="medium")
        axes.axvline(1, color="0.7", linewidth=1, zorder=0)
        axes.set_xlabel("time / fastest rival (left is faster)")
        axes.grid(axis="y", color="0.92")
        axes.set_axisbelow(True)
        axes.tick_params(axis="y", length=0)
        axes.spines[["top", "right", "left"]].set_visible(False)
    first = panels[0]
    first.set_xscale("log")
    low, high = first.get_xlim()
    first.set_xticks(ticks := [tick for tick in TICKS if low <= tick <= high], map(str, ticks))
    first.minorticks_off()
    first.set_yticks(range(len(titles)), titles)
    first.set_ylim(len(titles) - 0.5, -0.5)
    handles = [first.plot([], [], "o", color=c, label=name)[0] for name, c in COLORS.items()]
    figure.legend(handles=handles, loc="outside upper center", ncols=3, frameon=False)
    return figure


def draw_table(axes: Any, height: int, rows: dict[str, dict[str, Any]]) -> None:
    """A point for each precision, one above the other."""
    for offset, (precision, color) in zip((-0.2, 0, 0.2), COLORS.items(), strict=True):
        if precision in rows:
            row, y = rows[precision], height + offset
            low, middle, high = row["quartiles_of_ratios"]["best"]
            face = "white" if "onnx" in row["name"] else color
            axes.plot([low, high], [y, y], color=color, linewidth=2, alpha=0.4)
            axes.plot(middle, y, "o", color=color, markerfacecolor=face)


def main(argv: list[str] | None = None) -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, metavar="RESULTS.json")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.png")
    args = parser.parse_args(argv)
    command = ["python", "scripts/plot_serving.py", *(sys.argv[1:] if argv is None else argv)]
    with one_line_endings():
        save_png(draw(read(args.results)), args.out, shown(command, {}))


if __name__ == "__main__":
    main()
