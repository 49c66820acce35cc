"""The figures of the benchmark: rates, loss against tokens and time, final losses, BLiMP."""

from itertools import chain
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any

from examples.shared.panels import draw_floor, label_ends, panels
from examples.study.benchmark_plan import ENCODINGS
from examples.study.benchmark_results import Finals, best_rate, by_loss, paired, shares
from examples.study.measures import band, difference
from examples.study.training import losses_of
from scripts.drawing.plots import save_png

#: Bits above the lowest final loss of the encodings that are also drawn at a larger scale.
NEAR = 0.5


def draw(
    found: Finals, time: dict[str, list[float]], floor: float, size: str, out: Path, command: str
) -> list[str]:
    """Draw all figures of a size.

    Args:
        found: the runs at full length.
        time: of an update relative to `learned`, by encoding and round.
        floor: loss of token frequencies alone.
        size: a part of the names of the figures.
        out: folder of the figures.
        command: that made the figures.

    Returns:
        The lines that show them in the report.
    """
    draw_curves(found, time, floor, out / f"losses_{size}.png", command)
    draw_final(found, out / f"final_{size}.png", command)
    shown = [f"![Loss against tokens and time](losses_{size}.png)", ""]
    shown += [f"![Final losses](final_{size}.png)", ""]
    if shares(found):
        draw_blimp(found, out / f"blimp_{size}.png", command)
        shown += [f"![BLiMP by phenomenon](blimp_{size}.png)", ""]
    return shown


def near(found: Finals) -> Finals:
    """Encodings near the best, the lowest loss first."""
    ranked = by_loss(found)
    lowest = next(iter(ranked.values())).loss
    return {name: own for name, own in ranked.items() if own.loss < lowest + NEAR}


def draw_rates(
    found: dict[str, dict[float, float]], updates: int, out: Path, command: str
) -> None:
    """Loss by learning rate, a panel for each encoding; the others are grey."""
    columns = min(len(found), 5)
    rows = ceil(len(found) / columns)
    size = (2.5 * columns, 2.3 * rows + 0.4)
    figure, all_axes = panels(*size, rows, columns, sharex=True, sharey=True)
    tried = sorted(set(chain(*found.values())))
    for axes in all_axes[len(found) :]:
        axes.set_axis_off()
    for axes, (name, own) in zip(all_axes, found.items(), strict=False):
        axes.margins(y=0.2)
        for other in found.values():
            axes.plot(other.keys(), other.values(), color="0.85", linewidth=1, zorder=0)
        axes.plot(own.keys(), own.values(), "o-", color="C0", markersize=4)
        best = best_rate(own)
        label = axes.annotate(
            f"{own[best]:.2f}", (best, own[best]), (0, -15), textcoords="offset points"
        )
        label.set(ha="center", bbox={"color": "white", "pad": 0, "alpha": 0.8})
        axes.set_xscale("log", base=2)
        axes.set_xticks(tried, [f"{1000 * rate:g}" for rate in tried])
        axes.set_title(name, fontsize=10)
    figure.supxlabel("learning rate, thousandths")
    figure.supylabel(f"loss after {updates:,} updates, bits")
    save_png(figure, out, command)


def draw_curves(
    found: Finals, time: dict[str, list[float]], floor: float, out: Path, command: str
) -> None:
    """Loss against tokens, and against time; below, the last half of those near the best."""
    units = ["tokens", "time"] if found.keys() <= time.keys() else ["tokens"]
    figure, all_axes = panels(2.2 + 3.7 * len(units), 9, 2, len(units), sharey="row")
    # An encoding has the same color at each size.
    names = dict.fromkeys((*ENCODINGS, *found))
    colors = {name: f"C{i % 10}" for i, name in enumerate(names)}
    for i, axes in enumerate(all_axes):
        unit = units[i % len(units)]
        larger = i >= len(units)
        draw_panel(axes, near(found) if larger else found, time, unit, larger, colors)
        if not larger:
            draw_floor(axes, floor)
    save_png(figure, out, command)


def draw_panel(
    axes: Any,
    found: Finals,
    time: dict[str, list[float]],
    unit: str,
    last_half: bool,
    colors: dict[str, str],
) -> None:
    """Mean over seeds and their range, against `tokens` or `time`."""
    ends = {}
    for name, own in found.items():
        points = band([losses_of(row) for row in own.rows])
        last = points[-1][0]
        updates, means, lows, highs = zip(
            *(point for point in points if not last_half or 2 * point[0] >= last), strict=True
        )
        whole = median(time[name]) / last if unit == "time" else own.rows[0]["tokens"] / 1e6
        places = [update * whole for update in updates]
        axes.plot(places, means, color=colors[name])
        axes.fill_between(places, lows, highs, color=colors[name], alpha=0.15, linewidth=0)
        ends[name] = places[-1], means[-1]
    label = "tokens, millions" if unit == "tokens" else "time, × the training of learned"
    axes.set(xlabel=label, ylabel="validation loss, bits per masked token")
    label_ends(axes, ends, colors, "{:.2f}")


def draw_final(found: Finals, out: Path, command: str) -> None:
    """Final losses, sorted; beside them, paired differences from the best of those near it."""
    ranked = by_loss(found)
    close = near(found)
    best = next(iter(ranked))
    figure, (left, right) = panels(9.5, 0.34 * len(found) + 1.1, columns=2)
    draw_rows(left, {name: [*own.losses.values()] for name, own in ranked.items()}, "{:.3f}")
    left.set(xlabel="final loss, bits per masked token")
    first = ranked[best].losses
    apart = {name: paired(own.losses, first) for name, own in close.items() if name != best}
    draw_rows(right, {name: each for name, each in apart.items() if each}, "{:+.3f}")
    right.axvline(0, color="0.6", linestyle="--", linewidth=1)
    right.set(xlabel=f"difference from {best}, bits")
    told = "blue: mean and 95 % interval; grey: seeds; differences are paired by seed"
    figure.supxlabel(told, fontsize=9)
    save_png(figure, out, command)


def draw_rows(axes: Any, values: dict[str, list[float]], form: str) -> None:
    """Mean, interval and single values, the first at the top."""
    for i, own in enumerate(values.values()):
        middle = difference(own)
        axes.errorbar(middle.mean, -i, xerr=middle.half_width, fmt="o", color="C0", capsize=3)
        axes.plot(own, [-i - 0.25] * len(own), ".", color="0.6", markersize=4)
        above = {"xytext": (0, 7), "textcoords": "offset points", "ha": "center", "fontsize": 8}
        axes.annotate(form.format(middle.mean), (middle.mean, -i), **above)
    axes.set_yticks(range(0, -len(values), -1), values)


def draw_layers(found: Finals, modern: Finals, out: Path, command: str) -> None:
    """Final losses on the layers of BERT and on those of ModernBERT, sorted by the latter."""
    names = [name for name in by_loss(modern) if name in found]
    figure, (axes,) = panels(8, 0.5 * len(names) + 1.6)
    for kind, color, up, losses in (
        ("BERT", "C0", 0.12, found),
        ("ModernBERT", "C1", -0.12, modern),
    ):
        places = [up - i for i in range(len(names))]
        means = [losses[name].loss for name in names]
        axes.plot(means, places, "o", color=color, label=f"layers of {kind}")
        for name, place in zip(names, places, strict=True):
            # Intervals of two seeds would be too wide to see anything else.
            seeds = [*losses[name].losses.values()]
            axes.plot(seeds, [place - 0.13] * len(seeds), ".", color="0.6", markersize=4)
    axes.set_yticks(range(0, -len(names), -1), names)
    axes.set(xlabel="final loss, bits per masked token: mean over the seeds; grey: seeds")
    axes.legend(frameon=False)
    save_png(figure, out, command)


def draw_blimp(found: Finals, out: Path, command: str) -> None:
    """Accuracy by phenomenon, mean over the seeds, the encoding with the lowest loss first."""
    ranked = shares(by_loss(found))
    phenomena = list(next(iter(ranked.values())))
    figure, (axes,) = panels(1.8 + 0.85 * len(ranked), 1.5 + 0.42 * len(phenomena))
    cells = [[own[key] for own in ranked.values()] for key in phenomena]
    # White is chance.
    axes.imshow(cells, cmap="RdBu", vmin=10, vmax=90, aspect="auto")
    for i, row in enumerate(cells):
        for j, value in enumerate(row):
            color = "black" if 25 < value < 80 else "white"
            axes.text(j, i, f"{value:.0f}", ha="center", va="center", fontsize=9, color=color)
    names = [name.replace("+", "\n+") for name in ranked]
    axes.set_xticks(range(len(ranked)), names, rotation=45, ha="right")
    axes.set_yticks(range(len(phenomena)), [key.replace("_", " ") for key in phenomena])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title("accuracy, % of pairs (50 by chance); lowest loss first", fontsize=10)
    save_png(figure, out, command)
