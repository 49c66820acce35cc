"""Figures of what a trained model has learned about positions; maps.py gives the tensors.

Needs matplotlib, the extra `viz`.
"""

import logging
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from tupe_fairseq import ConfigurationError
from tupe_fairseq.base.extras import import_extra
from tupe_fairseq.base.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Width and height of a head's heat map with its colour bar, in inches.
WIDTH = 2.4
HEIGHT = 2.1
#: Space above and below each part of a figure, in inches.
GAP = 0.08
#: Share of the values at either end that the range of colours leaves out.
OUTLIERS = 0.005


def draw_positional_correlations(
    correlations: Tensor,
    title: str,
    caption: str = "",
    names: Sequence[str] | None = None,
) -> "Figure":
    """One heat map per head of the content-free score term (figure of Ke et al. 2021).

    Args:
        correlations: H×T×T, queries in rows, keys in columns.
        title: above the figure.
        caption: small, below the figure; e.g. the command that made it.
        names: titles of the maps; default: "head 1", ...

    Raises:
        UsageError: matplotlib is not installed.
    """
    heads = len(correlations)
    columns = 3 if heads in (3, 9) else min(heads, 4)
    rows = -(-heads // columns)
    # A single map is larger, or the title would not fit.
    scale = 2 if heads == 1 else 1
    size = (scale * WIDTH * columns, scale * HEIGHT * rows + 0.8)
    figure = figure_class()(figsize=size, dpi=150)
    figure.set_layout_engine("constrained", h_pad=GAP)
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flat
    names = names or [f"head {head + 1}" for head in range(heads)]
    for panel in panels[heads:]:
        panel.set_visible(False)
    for head, panel in enumerate(panels[:heads]):
        _draw_map(panel, correlations[head], names[head])
        if head + columns >= heads:
            panel.set_xlabel("key position", fontsize=8)
        if head % columns == 0:
            panel.set_ylabel("query position", fontsize=8)
    figure.suptitle(title, fontsize=10)
    if caption:
        _write_below(figure, caption)
    return figure


def _draw_map(panel: "Axes", values: Tensor, name: str) -> None:
    """One heat map with its colour bar, and ticks at [CLS] and at round positions."""
    low, high = color_limits(values)
    image = panel.imshow(values.float().cpu().numpy(), vmin=low, vmax=high)
    figure = panel.figure
    bar = figure.colorbar(image, ax=panel, extend="both", shrink=0.75, pad=0.02, aspect=25)
    bar.ax.tick_params(labelsize=6, length=2)
    panel.set_title(name, fontsize=9)
    length = len(values)
    step = next((s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500) if length / s <= 5), 1000)
    ticks = [0, *range(step, length, step)]
    labels = ["[CLS]", *map(str, ticks[1:])]
    panel.set_xticks(ticks, labels, fontsize=7)
    panel.set_yticks(ticks, labels, fontsize=7)


def _write_below(figure: "Figure", caption: str) -> None:
    """Write a caption below the maps, small and right-aligned, in several lines if needed."""
    lines = textwrap.wrap(caption, int(25 * figure.get_figwidth()))
    figure.text(0.99, 0.01, "\n".join(lines), fontsize=5, color="0.5", ha="right", va="bottom")
    strip = (0.1 + 0.1 * len(lines)) / figure.get_figheight()
    figure.set_layout_engine("constrained", rect=(0, strip, 1, 1 - strip), h_pad=GAP)


def color_limits(correlations: Tensor) -> tuple[float, float]:
    """Range of colours of a T×T map: that of its values without [CLS] and a few outliers.

    The values of an untied [CLS] are often far from the others and would dominate the range.
    """
    others = correlations[1:, 1:] if len(correlations) > 1 else correlations
    values = others.flatten().sort().values
    cut = int(OUTLIERS * (len(values) - 1))
    low = values[cut].item()
    high = values[-1 - cut].item()
    return (low, high) if low < high else (low - 1, high + 1)


def save_png(figure: "Figure", path: str | Path, command: str = "") -> None:
    """Write a figure atomically.

    Args:
        figure: the figure.
        path: a name that ends in .png, in an existing folder.
        command: the command that made it, for the file's metadata (Description).

    Raises:
        UsageError: the name does not end in .png, or the file cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() != ".png":
        raise ConfigurationError(f"invalid name of a figure: {path.name!r}; it must end in .png.")
    with replacing(path) as aside:
        figure.savefig(aside, format="png", metadata={"Description": command})


def figure_class() -> "type[Figure]":
    """The class Figure of matplotlib.

    Raises:
        UsageError: matplotlib is not installed.
    """
    # fairseq enables the debugging output of all libraries; matplotlib's begins at its import.
    logging.getLogger("matplotlib").setLevel(logging.WARNING)
    return import_extra("matplotlib.figure", "viz").figure.Figure
