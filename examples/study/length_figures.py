"""Which models of length.py hold at longer texts, and the figures."""

from pathlib import Path
from statistics import mean
from typing import Any

from examples.shared.panels import LINE, label_ends, panels
from examples.study.length_measures import FACTORS, KINDS
from tupe_fairseq.plots import save_png

#: Bits by which the loss at the longest length may exceed that at the trained one: a model with at
#: most the first holds, with more than the second it breaks.
HOLDS, BREAKS = 0.05, 0.5
#: What `length_measures.measure` returns, by name of the model (an encoding, and perhaps a scaling
#: or a window) and seed.
Found = dict[str, dict[int, dict[str, Any]]]
COLORS = {"holds": "C0", "degrades": "0.5", "breaks": "C3"}
#: Labels of the logarithmic axis.
TICKS = (-5, -2, -1, -0.5, -0.2, -0.1, -0.05, 0, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20)


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
    # A panel has at least three quarters of the height.
    height = max(4.5, len(ends) * LINE / 0.75)
    figure, (axes,) = panels(7.5, height)
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
