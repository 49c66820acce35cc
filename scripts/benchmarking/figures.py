"""Figures of ratios of times, drawn from results by plot_speed.py and plot_serving.py."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drawing.plots import figure_class, save_png

from tupe_fairseq.base.errors import one_line_endings
from tupe_fairseq.base.machine import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TICKS = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5)


def panels(count: int, size: tuple[float, float]) -> "tuple[Figure, list[Axes]]":
    """A figure of this size in inches, and its panels side by side, which share both axes."""
    figure = figure_class()(figsize=size, dpi=150, layout="constrained")
    return figure, list(figure.subplots(1, count, squeeze=False, sharex=True, sharey=True)[0])


def ratio(axes: Any, height: float, quartiles: list[float], marker: str, **style: Any) -> None:
    """A point at the median of ratios, and a line between the outer quartiles."""
    low, middle, high = quartiles
    axes.plot([low, high], [height, height], color=style["color"], linewidth=2, alpha=0.4)
    axes.plot(middle, height, marker, **style)


def finish(panel: Any, title: str, rival: str) -> None:
    """Style a panel whose ratios are drawn; `rival` is what times are divided by."""
    panel.set_title(title, fontsize="medium")
    panel.axvline(1, color="0.7", linewidth=1, zorder=0)
    panel.set_xscale("log")
    low, high = panel.get_xlim()
    panel.set_xticks(ticks := [tick for tick in TICKS if low <= tick <= high], map(str, ticks))
    panel.minorticks_off()
    panel.grid(axis="y", color="0.92")
    panel.set_axisbelow(True)
    panel.set_xlabel(f"time / {rival} (left is faster)")
    panel.tick_params(axis="y", length=0)
    panel.spines[["top", "right", "left"]].set_visible(False)


def name_rows(panel: Any, names: list[str]) -> None:
    """Name the rows of the first panel, the first of them at the top."""
    panel.set_yticks(range(len(names)), names)
    panel.set_ylim(len(names) - 0.5, -0.5)


def save(
    script: str,
    description: str,
    draw: Callable[[Any], "Figure"],
    argv: list[str] | None,
    **several: Any,
) -> None:
    """Draw the results that a command line names, and save the figure with the command.

    Args:
        script: name of the file of the command.
        description: for its help.
        draw: the figure of the results.
        argv: the arguments; None for those of this process.
        **several: `nargs` of the results, where there can be several.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("results", type=Path, metavar="RESULTS.json", **several)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.png")
    args = parser.parse_args(argv)
    command = ["python", f"scripts/{script}", *(sys.argv[1:] if argv is None else argv)]
    with one_line_endings():
        save_png(draw(args.results), args.out, shown(command, {}))
