"""What the figures of all examples have in common."""

from typing import Any

from scripts.drawing.plots import figure_class

#: Distance of two labels in inches.
LINE = 0.18


def panels(width: float, height: float, rows: int = 1, columns: int = 1, **how: Any) -> Any:
    """A figure of this size in inches and the list of its panels, row by row.

    Args:
        width: of the figure.
        height: of the figure.
        rows: of panels.
        columns: of panels.
        **how: of matplotlib's `Figure.subplots`.
    """
    figure = figure_class()(figsize=(width, height), dpi=150, layout="constrained")
    found = [*figure.subplots(rows, columns, squeeze=False, **how).flat]
    for axes in found:
        axes.spines[["top", "right"]].set_visible(False)
    return figure, found


def draw_floor(axes: Any, loss: float) -> None:
    """The loss of a masked model without context (see frequencies.py) as a dashed line."""
    axes.axhline(loss, color="0.6", linestyle="--", linewidth=1)
    place = {"xy": (1, loss), "xycoords": axes.get_yaxis_transform(), "ha": "right"}
    above = {"xytext": (0, 4), "textcoords": "offset points", "fontsize": 8, "color": "0.4"}
    axes.annotate("token frequencies alone,\nwithout context", **place, **above)


def label_ends(
    axes: Any, ends: dict[str, tuple[float, float]], colors: dict[str, str], form: str
) -> None:
    """Names and values beside the ends of lines, moved apart where they would overlap.

    Args:
        axes: the panel.
        ends: last points, by name.
        colors: of the lines.
        form: of a value.
    """
    names = sorted(ends, key=lambda name: ends[name][1])
    gap = LINE / (axes.figure.get_figheight() * axes.get_position().height)
    to_panel = axes.transData + axes.transAxes.inverted()
    heights: list[float] = []
    for name in names:
        height = to_panel.transform(ends[name])[1]
        heights.append(max(height, heights[-1] + gap if heights else 0))
    for i, name in enumerate(names):
        line = {"arrowstyle": "-", "color": colors[name], "linewidth": 0.4, "relpos": (0, 0.5)}
        axes.annotate(
            f"{name}  {form.format(ends[name][1])}",
            ends[name],
            (1.06, min(heights[i], 1 - gap * (len(names) - 1 - i))),
            textcoords=axes.transAxes,
            arrowprops=line | {"shrinkA": 0, "shrinkB": 0},
            va="center",
            fontsize=8,
            color=colors[name],
        )
