"""The report of length.py: report.md, length.png, and results.json with the numbers."""

import argparse
import json
import shlex
from collections import defaultdict
from collections.abc import Iterator
from datetime import date
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

from examples.shared.markdown import shown, spread, table
from examples.study.algorithmic import TRAINED
from examples.study.comparison import summarise
from examples.study.length_measures import FACTORS, KINDS
from examples.study.report import device
from tupe_fairseq.files import replacing
from tupe_fairseq.plots import figure_class, save_png

#: Bits by which the loss at the longest length may exceed that at the trained one: a model with at
#: most the first holds, with more than the second it breaks.
HOLDS, BREAKS = 0.05, 0.5
COLORS = {"holds": "C0", "degrades": "0.5", "breaks": "C3"}
#: Labels of the logarithmic axis.
TICKS = (-5, -2, -1, -0.5, -0.2, -0.1, -0.05, 0, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20)
#: Distance of two labels, in heights of the figure's panels.
GAP = 0.035
#: Results of a model by seed, by its name: an encoding, and perhaps a scaling.
Found = dict[str, dict[int, dict[str, Any]]]


def read_losses(folder: Path) -> Found:
    """All results below the folder of a part, the models that hold best first."""
    found: Found = defaultdict(dict)
    for path in sorted(folder.glob("*/*/*.json")):
        encoding, seed = path.parts[-3:-1]
        name = encoding if path.stem == "loss" else f"{encoding}, {path.stem}"
        found[name][int(seed)] = json.loads(path.read_text())
    return dict(sorted(found.items(), key=lambda item: growth(item[1])[FACTORS[-1]]))


def growth(runs: dict[int, dict[str, Any]]) -> dict[int, float]:
    """Loss at each factor minus that at the trained length, mean over seeds."""
    return {
        k: mean(run[str(k)]["mean"] - run["1"]["mean"] for run in runs.values()) for k in FACTORS
    }


def verdict(change: float) -> str:
    """What the growth at the longest length means."""
    return "holds" if change <= HOLDS else "breaks" if change > BREAKS else "degrades"


def bands(trained: int) -> list[tuple[int, int]]:
    """Ranges of positions: quarters of the trained length at first, then doubling."""
    edges = [0, trained // 4, trained // 2, *(k * trained for k in FACTORS)]
    return list(pairwise(edges))


def by_position(runs: dict[int, dict[str, Any]], unit: int) -> Iterator[str]:
    """Mean loss in each range of positions, in sequences of the longest length."""
    for start, stop in bands(unit):
        values = []
        for run in runs.values():
            losses = run[str(FACTORS[-1])]["by_position"][start:stop]
            values.append([loss for loss in losses if loss is not None])
        yield spread((mean(each) for each in values if each), "{:.3f}")


def any_run(found: Found) -> dict[str, Any]:
    """The results of one model."""
    return next(iter(next(iter(found.values())).values()))


def trained_length(part: str, found: Found) -> int:
    """Tokens of a sequence in training, with special ones."""
    return len(any_run(found)["1"]["by_position"]) + KINDS[part].special


def listed(names: list[str]) -> str:
    """Names in a sentence."""
    return ", ".join(f"`{name}`" for name in names) or "nothing"


def losses_part(part: str, found: Found, trained: int, missing: list[str]) -> list[str]:
    """Lines of the report on a kind of models."""
    kind = KINDS[part]
    unit = trained - kind.special
    lengths = [f"{k * unit + kind.special:,} tokens" for k in FACTORS]

    def rows(key: str) -> Iterator[list[str]]:
        for name, runs in found.items():
            cells = [spread((r[str(k)][key] for r in runs.values()), "{:.3f}") for k in FACTORS]
            yield [f"`{name}`", *cells]

    changes = {name: growth(runs)[FACTORS[-1]] for name, runs in found.items()}
    verdicts = [[f"{each:+.3f}", verdict(each)] for each in changes.values()]
    ends = [f"{start:,} to {stop - 1:,}" for start, stop in bands(unit)]
    positions = ([f"`{name}`", *by_position(runs, unit)] for name, runs in found.items())
    return [
        *(f"## {kind.title}", ""),
        f"Trained at {trained} tokens. Loss in bits per token of the same "
        f"{any_run(found)['1']['tokens']:,} held-out tokens at all lengths; median and range over "
        "seeds, or one seed. Growth: the last length minus the first, mean over seeds. A model "
        f"holds at a growth of at most {HOLDS} and breaks above {BREAKS}. Trained tables of "
        "positions are extended (`--extend-positions hierarchical`). A name after a comma is a "
        "`--rope-scaling` of the same checkpoint, without training. Planned and not run: "
        f"{listed(missing)}.",
        "",
        *table(
            ["encoding", *lengths, "growth", "verdict"],
            ([*row, *more] for row, more in zip(rows("mean"), verdicts, strict=True)),
        ),
        *("", f"### The last {unit} tokens of each block", ""),
        "The same tokens at the end of sequences of each length, so that only their context "
        "grows. In the table above, shorter sequences have more tokens with little context, which "
        "raises their loss (the early-token effect).",
        *("", *table(["encoding", *lengths], rows("last"))),
        *("", f"### By position of the text, in sequences of {lengths[-1]}", ""),
        *(*table(["encoding", *ends], positions), ""),
    ]


def algorithmic_part(folder: Path, planned: list[str]) -> list[str]:
    """Lines of the report on the tasks of algorithmic.py."""
    scores: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    files = sorted(folder.glob("*.jsonl"))
    missing = [name for name in planned if folder / f"{name}.jsonl" not in files]
    for line in (json.loads(text) for path in files for text in path.read_text().splitlines()):
        short = mean(v for n, v in line["by_length"].items() if int(n) <= TRAINED)
        scores[line["task"], line["encoding"]].append((short, line["score"]))
        training = f"{line['updates']:,} updates of {line['batch_size']} strings"
    if not scores:
        return ["## Algorithmic tasks", "", "Not run.", ""]
    ordered = sorted(scores.items(), key=lambda item: (item[0][0], -item[1][0][1]))
    rows = []
    for (task, encoding), values in ordered:
        columns = zip(*values, strict=True)
        cells = (spread((100 * value for value in column), "{:.1f}") for column in columns)
        rows.append([f"`{task}`", f"`{encoding}`", *cells])
    return [
        *("## Algorithmic tasks", ""),
        f"Share of correct symbols in percent, up to the trained {TRAINED} symbols and beyond; "
        f"half are right by chance. {training}. Median and range over seeds, or one seed. Planned "
        f"and not run: {listed(missing)}.",
        *("", *table(["task", "encoding", f"up to {TRAINED}", f"beyond {TRAINED}"], rows), ""),
    ]


def draw(results: dict[str, Found], lengths: dict[str, int], out: Path, command: str) -> None:
    """Growth of the loss against the length, a panel for each kind of models.

    Args:
        results: by part.
        lengths: trained, by part.
        out: a name ending in .png.
        command: that made the figure.
    """
    size = (7 * len(results), 6)
    figure = figure_class()(figsize=size, dpi=150, layout="constrained")
    panels = figure.subplots(1, len(results), squeeze=False)[0]
    for axes, (part, found) in zip(panels, results.items(), strict=True):
        ends = {name: growth(runs) for name, runs in found.items()}
        for name, changes in ends.items():
            color = COLORS[verdict(changes[FACTORS[-1]])]
            style = "--" if "," in name else "-"
            axes.plot(FACTORS, changes.values(), style, color=color, linewidth=1.5)
        # Linear near 0, where models that hold differ by hundredths of a bit.
        axes.set_yscale("symlog", linthresh=0.1)
        low, high = axes.get_ylim()
        low, high = min(low, -0.1), max(high, 0.1)
        axes.set_yticks(ticks := [tick for tick in TICKS if low <= tick <= high], map(str, ticks))
        axes.set_ylim(low, high)
        axes.axhline(0, color="0.8", linewidth=0.8, zorder=0)
        axes.set_xscale("log", base=2)
        extra = KINDS[part].special
        sizes = [k * (lengths[part] - extra) + extra for k in FACTORS]
        axes.set_xticks(FACTORS, [f"{n:,}\n{k}×" for n, k in zip(sizes, FACTORS, strict=True)])
        axes.minorticks_off()
        axes.set(xlabel="tokens in a sequence", ylabel="loss minus that at 1×, bits per token")
        held = sum(verdict(changes[FACTORS[-1]]) == "holds" for changes in ends.values())
        axes.set_title(
            f"{KINDS[part].title} trained at {lengths[part]} tokens: {held} of {len(ends)} hold"
        )
        axes.spines[["top", "right"]].set_visible(False)
        label_ends(axes, {name: changes[FACTORS[-1]] for name, changes in ends.items()})
    save_png(figure, out, command)


def label_ends(axes: Any, ends: dict[str, float]) -> None:
    """Names beside the ends of lines, moved apart where they would overlap."""
    names = sorted(ends, key=lambda name: ends[name])
    to_panel = axes.transData + axes.transAxes.inverted()
    heights: list[float] = []
    for name in names:
        height = to_panel.transform((FACTORS[-1], ends[name]))[1]
        above = heights[-1] + GAP if heights else 0
        heights.append(max(height, above))
    for i, name in enumerate(names):
        color = COLORS[verdict(ends[name])]
        line = {"arrowstyle": "-", "color": color, "linewidth": 0.4, "relpos": (0, 0.5)}
        height = min(heights[i], 1 - GAP * (len(names) - 1 - i))
        axes.annotate(
            f"{name}  {ends[name]:+.2f}",
            (FACTORS[-1], ends[name]),
            (1.06, height),
            textcoords=axes.transAxes,
            arrowprops=line | {"shrinkA": 0, "shrinkB": 0},
            va="center",
            fontsize=8,
            color=color,
        )


def runs_part(out: Path, results: dict[str, Found], command: str) -> list[str]:
    """Lines of the report on device, seeds, time and commands."""
    lines = ["## Runs", "", f"{device()}. Reported on {date.today()}.", ""]
    rows = []
    for part, found in results.items():
        seeds = {name: sorted(runs) for name, runs in found.items() if "," not in name}
        trained = [out / part / name / str(seed) for name in seeds for seed in seeds[name]]
        said = "; ".join(f"`{name}` {', '.join(map(str, own))}" for name, own in seeds.items())
        rows.append([part, len(trained), f"{sum(map(minutes, trained)):.0f}", said])
    clock = "minutes of training (processor time; wall-clock on a GPU)"
    lines += [*table(["part", "models", clock, "seeds"], rows), ""]
    lines += ["```bash", command, "```", ""]
    for part in results:
        flags = json.loads((out / part / "settings.json").read_text())["flags"]
        # settings.json leaves out the folder of the package.
        flags[1:1] = ["tupe_fairseq"]
        lines += [f"Flags of all {part} models, before those of each encoding and seed (the last "]
        lines += ["of two equal flags counts):", "", "```bash", shlex.join(flags), "```", ""]
    return lines


def minutes(folder: Path) -> float:
    """Time of a training, from that of its updates between reports."""
    log = summarise(folder)
    return mean(log["seconds"].values() or [0]) * max(log["losses"], default=0) / 60


def write_report(args: argparse.Namespace) -> None:
    """Write the report from the results so far, also those of earlier calls.

    Args:
        args: of length.py.
    """
    args.results.mkdir(parents=True, exist_ok=True)
    command = shown(args.command, {"OUT": args.out, "DATA_BIN": args.data})
    results = {part: found for part in KINDS if (found := read_losses(args.out / part))}
    lengths = {part: trained_length(part, found) for part, found in results.items()}
    lines = ["# Longer texts than trained", ""]
    lines += ["Written by `examples/study/length.py`; do not edit.", ""]
    if results:
        draw(results, lengths, args.results / "length.png", command)
        lines += ["![Growth of the loss with the length](length.png)", ""]
        lines += ["Blue: holds; grey: degrades; red: breaks; dashed: scalings of `rope`.", ""]
    for part, found in results.items():
        missing = [name for name in getattr(args, part) if name not in found]
        lines += losses_part(part, found, lengths[part], missing)
    lines += algorithmic_part(args.out / "algorithmic", args.algorithmic)
    lines += runs_part(args.out, results, command)
    with replacing(args.results / "report.md") as aside:
        aside.write_text("\n".join(lines), encoding="utf-8")
    with replacing(args.results / "results.json") as aside:
        aside.write_text(json.dumps(numbers(results), indent=1) + "\n", encoding="utf-8")


def numbers(results: dict[str, Found]) -> dict[str, Any]:
    """The contents of results.json: the losses without those by position."""
    kept = ("mean", "last")
    return {
        part: {
            name: {
                seed: {k: {key: losses[key] for key in kept} for k, losses in run.items()}
                for seed, run in runs.items()
            }
            for name, runs in found.items()
        }
        for part, found in results.items()
    }
