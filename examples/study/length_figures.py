"""Which models of length.py hold at longer texts, and the figures."""

from pathlib import Path
from statistics import mean
from typing import Any

from examples.study.algorithmic import TRAINED
from examples.study.length_measures import FACTORS, KINDS
from tupe_fairseq.plots import figure_class, save_png

#: Bits by which the loss at the longest length may exceed that at the trained one: a model with at
#: most the first holds, with more than the second it breaks.
HOLDS, BREAKS = 0.05, 0.5
#: What `length_measures.measure` returns, by name of the model (an encoding, and perhaps a scaling
#: or a window) and seed.
Found = dict[str, dict[int, dict[str, Any]]]
#: Results of the algorithmic tasks by task and encoding.
Solved = dict[str, dict[str, list[dict[str, Any]]]]
COLORS = {"holds": "C0", "degrades": "0.5", "breaks": "C3"}
#: Labels of the logarithmic axis.
TICKS = (-5, -2, -1, -0.5, -0.2, -0.1, -0.05, 0, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20)
#: Distance of two labels in inches, and about the share of a figure's height that a panel has.
LINE, SHARE = 0.18, 0.86


def growth(runs: dict[int, dict[str, Any]]) -> dict[int, float]:
    """Loss at each factor minus that at the trained length, mean over seeds."""
    return {
        k: mean(run["mean"][str(k)] - run["mean"]["1"] for run in runs.values()) for k in FACTORS
    }


def verdict(change: float) -> str:
    """What the growth at the longest length means."""
    return "holds" if change <= HOLDS else "breaks" if change > BREAKS else "degrades"


def draw_growth(part: str, found: Found, trained: int, out: Path, command: str) -> None:
    """Growth of the loss of a kind of models against the length.

    Args:
        part: the kind, a key of `KINDS`.
        found: its results, at least one.
        trained: tokens of a sequence in training.
        out: a name ending in .png.
        command: that made the figure.
    """
    changes = {name: growth(runs) for name, runs in found.items()}
    ends = {name: values[FACTORS[-1]] for name, values in changes.items()}
    colors = {name: COLORS[verdict(end)] for name, end in ends.items()}
    height = max(4.5, len(ends) * LINE / SHARE + 0.5)
    figure = figure_class()(figsize=(7.5, height), dpi=150, layout="constrained")
    axes = figure.subplots()
    for name, values in changes.items():
        style = "--" if "," in name else "-"
        axes.plot(FACTORS, values.values(), style, color=colors[name], linewidth=1.5)
    scale_growth(axes)
    extra = KINDS[part].special
    sizes = [k * (trained - extra) + extra for k in FACTORS]
    axes.set_xticks(FACTORS, [f"{n:,}\n{k}×" for n, k in zip(sizes, FACTORS, strict=True)])
    axes.minorticks_off()
    axes.set(xlabel="tokens in a sequence", ylabel="loss minus that at 1×, bits per token")
    axes.set_title(f"{KINDS[part].title}, trained at {trained} tokens")
    axes.spines[["top", "right"]].set_visible(False)
    label_ends(axes, {name: (FACTORS[-1], end) for name, end in ends.items()}, colors, "{:+.2f}")
    save_png(figure, out, command)


def scale_growth(axes: Any) -> None:
    """A vertical scale that is linear near 0, where models that hold differ by hundredths."""
    axes.set_yscale("symlog", linthresh=0.1)
    low, high = axes.get_ylim()
    low, high = min(low, -0.1), max(high, 0.1)
    axes.set_yticks(ticks := [tick for tick in TICKS if low <= tick <= high], map(str, ticks))
    axes.set_ylim(low, high)
    axes.axhline(0, color="0.8", linewidth=0.8, zorder=0)
    axes.set_xscale("log", base=2)


def draw_accuracy(solved: Solved, out: Path, command: str) -> None:
    """Accuracy of the algorithmic tasks against the length, a panel for each task.

    Args:
        solved: at least one task.
        out: a name ending in .png.
        command: that made the figure.
    """
    figure = figure_class()(figsize=(7 * len(solved), 4.5), dpi=150, layout="constrained")
    panels = figure.subplots(1, len(solved), squeeze=False)[0]
    names = sorted({name.partition("+")[0] for found in solved.values() for name in found})
    for axes, (task, found) in zip(panels, solved.items(), strict=True):
        ends, colors = {}, {}
        for name, lines in found.items():
            colors[name] = f"C{names.index(name.partition('+')[0])}"
            lengths = list(lines[0]["by_length"])
            means = [100 * mean(line["by_length"][n] for line in lines) for n in lengths]
            style = "--" if "+" in name else "-"
            axes.plot([int(n) for n in lengths], means, style, color=colors[name], linewidth=1.5)
            ends[name] = int(lengths[-1]), means[-1]
        axes.axvline(TRAINED, color="0.8", linewidth=0.8, zorder=0)
        axes.set(xlabel=f"symbols (trained: up to {TRAINED})", ylabel="correct symbols, percent")
        axes.set_ylim(40, 102)
        axes.set_title(task)
        axes.spines[["top", "right"]].set_visible(False)
        label_ends(axes, ends, colors, "{:.0f} %")
    save_png(figure, out, command)


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
    gap = LINE / (axes.figure.get_figheight() * SHARE)
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
