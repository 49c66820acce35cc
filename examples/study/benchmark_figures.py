"""The figures of the benchmark: loss against tokens and time, final losses, BLiMP."""

from itertools import chain
from math import ceil
from pathlib import Path
from statistics import mean

from examples.study.benchmark_results import Finals, best_rate, by_loss
from examples.study.length_figures import label_ends
from examples.study.measures import band, difference
from examples.study.training import losses_of
from tupe_fairseq.plots import figure_class, save_png


def draw(found: Finals, time: dict[str, float], size: str, out: Path, command: str) -> list[str]:
    """Draw all figures of a size.

    Args:
        found: the runs at full length.
        time: of an update relative to `learned`, by encoding.
        size: a part of the names of the figures.
        out: folder of the figures.
        command: that made the figures.

    Returns:
        The lines that show them in the report.
    """
    name = size.replace(" ", "_")
    draw_curves(found, time, out / f"losses_{name}.png", command)
    draw_final(found, out / f"final_{name}.png", command)
    shown = [f"![Loss against tokens and time](losses_{name}.png)", ""]
    shown += [f"![Final losses](final_{name}.png)", ""]
    if all("blimp" in row for own in found.values() for row in own.rows):
        draw_blimp(found, out / f"blimp_{name}.png", command)
        shown += [f"![BLiMP by phenomenon](blimp_{name}.png)", ""]
    return shown


def draw_rates(found: dict[str, dict[float, float]], out: Path, command: str) -> None:
    """Loss by learning rate, a panel for each encoding; the others are grey."""
    columns = min(len(found), 5)
    rows = ceil(len(found) / columns)
    size = (2.5 * columns, 2.3 * rows + 0.4)
    figure = figure_class()(figsize=size, dpi=150, layout="constrained")
    tried = sorted(set(chain(*found.values())))
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat
    for axes, name in zip(panels, [*found, *[None] * (rows * columns - len(found))], strict=True):
        axes.margins(y=0.2)
        if name is None:
            axes.set_axis_off()
            continue
        for other in found.values():
            axes.plot(other.keys(), other.values(), color="0.85", linewidth=1, zorder=0)
        own, best = found[name], best_rate(found[name])
        axes.plot(own.keys(), own.values(), "o-", color="C0", markersize=4)
        axes.annotate(f"{own[best]:.2f}", (best, own[best]), (0, -12), textcoords="offset points")
        axes.set_xscale("log", base=2)
        axes.set_xticks(tried, [f"{1000 * rate:g}" for rate in tried])
        axes.set_title(name, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("learning rate, thousandths")
    figure.supylabel("final loss, bits")
    save_png(figure, out, command)


def draw_curves(found: Finals, time: dict[str, float], out: Path, command: str) -> None:
    """Loss against tokens, and against time: mean over seeds, and their range."""
    units = ["tokens", "time"] if found.keys() <= time.keys() else ["tokens"]
    figure = figure_class()(figsize=(7 * len(units), 6), dpi=150, layout="constrained")
    panels = figure.subplots(1, len(units), sharey=True, squeeze=False).flat
    colors = {name: f"C{i % 10}" for i, name in enumerate(found)}
    for axes, unit in zip(panels, units, strict=True):
        ends = {}
        for name, own in found.items():
            points = band([losses_of(row) for row in own.rows])
            updates, means, lows, highs = zip(*points, strict=True)
            whole = time[name] / updates[-1] if unit == "time" else own.rows[0]["tokens"] / 1e6
            places = [update * whole for update in updates]
            axes.plot(places, means, color=colors[name])
            axes.fill_between(places, lows, highs, color=colors[name], alpha=0.15, linewidth=0)
            ends[name] = places[-1], means[-1]
        label = "tokens, millions" if unit == "tokens" else "time, × the training of learned"
        axes.set(xlabel=label, ylabel="validation loss, bits per masked token")
        axes.spines[["top", "right"]].set_visible(False)
        label_ends(axes, ends, colors, "{:.2f}")
    save_png(figure, out, command)


def draw_final(found: Finals, out: Path, command: str) -> None:
    """Final losses with their intervals, sorted."""
    figure = figure_class()(figsize=(7, 0.45 * len(found) + 1.2), dpi=150, layout="constrained")
    axes = figure.subplots()
    order = [*by_loss(found)][::-1]
    for i, name in enumerate(order):
        values = list(found[name].losses.values())
        own = difference(values)
        axes.errorbar(own.mean, i, xerr=own.half_width, fmt="o", color="C0", capsize=3)
        axes.plot(values, [i - 0.25] * len(values), ".", color="0.6", markersize=4)
        axes.annotate(
            f"{own.mean:.3f}",
            (own.mean, i),
            (0, 7),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )
    axes.set_yticks(range(len(order)), order)
    axes.set(xlabel="final loss, bits per masked token (mean, 95 % interval; grey: seeds)")
    axes.spines[["top", "right"]].set_visible(False)
    save_png(figure, out, command)


def draw_blimp(found: Finals, out: Path, command: str) -> None:
    """Accuracy by phenomenon, mean over the seeds, one point for each encoding."""
    shares = {name: [row["blimp"]["phenomena"] for row in own.rows] for name, own in found.items()}
    phenomena = list(next(iter(shares.values()))[0])
    figure = figure_class()(figsize=(9, 6), dpi=150, layout="constrained")
    axes = figure.subplots()
    for i, (name, own) in enumerate(shares.items()):
        values = [mean(row[key] for row in own) for key in phenomena]
        marker = "osD^v<>PX*"[i % 10]
        axes.plot(values, range(len(phenomena)), marker, color=f"C{i % 10}", label=name, alpha=0.8)
    axes.axvline(50, color="0.6", linestyle="--", linewidth=1)
    place = {"xy": (50, 1.01), "xycoords": axes.get_xaxis_transform()}
    axes.annotate("chance", **place, fontsize=8, color="0.4", ha="center")
    axes.set_yticks(range(len(phenomena)), [key.replace("_", " ") for key in phenomena])
    axes.set(xlabel="accuracy, % of pairs")
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    axes.spines[["top", "right"]].set_visible(False)
    save_png(figure, out, command)
