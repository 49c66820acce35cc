"""The report of benchmark.py.

    python -m examples.study.benchmark_report DIRECTORY

Reads DIRECTORY/results.json; writes report.md and the figures of benchmark_figures.py, which need
matplotlib (the extra `viz`).
"""

from itertools import chain
from pathlib import Path
from statistics import mean
from typing import Any

from examples.shared import script
from examples.shared.markdown import NOT_RUN, spread, table
from examples.shared.results import Results, missing, read_results, rows, write_report
from examples.study.benchmark_figures import draw, draw_layers, draw_rates
from examples.study.benchmark_plan import SETTINGS, SIZES, Size
from examples.study.benchmark_results import (
    LEFT,
    Final,
    Finals,
    best_rate,
    by_loss,
    by_rate,
    finals,
    growth,
    paired,
    plateau,
    shares,
    times,
    with_interval,
)
from examples.study.longer_texts import FACTORS
from examples.study.measures import difference, reaching
from examples.study.training import final_loss, losses_of

Lines = list[str]


def first_part(results: Results) -> Lines:
    """What the tables of part 1 have in common, and the tables."""
    runs = results["runs"].values()
    parts = dict.fromkeys(run["settings"]["part"] for run in runs if "setting" in run["settings"])
    least = " and ".join(
        f"{loss:.3f} bits in sequences of {length} tokens"
        for length, loss in results["plan"]["context_free"].items()
    )
    return [
        "## 1. A strong baseline, and trials that were added",
        "",
        "Validation loss in bits by update; each setting changes one thing in the base "
        "(plan.md). A model that uses no context, only the frequencies of tokens, has at least "
        f"{least}. The plateau ends at the update at which the loss is {LEFT} bits below the "
        "final loss of `none` on sequences of the same length. Empty: no run of `none` has this "
        "schedule.",
        "",
        *chain(*(baseline(results, part) for part in parts)),
    ]


def baseline(results: Results, part: str) -> Lines:
    """Runs of part 1: loss by update, and the update that ends the plateau."""
    found = rows(results, part=part)
    if not found:
        return []
    recipe = results["plan"][part]
    floors = {row["setting"]: final_loss(row) for row in found if row["encoding"] == "none"}
    shown = [recipe["updates"] // 5 * k for k in range(1, 6)]
    cells = []
    for row in found:
        curve = losses_of(row)
        setting = row["setting"]
        # Other lengths have another floor.
        same = setting in floors or "--tokens-per-sample" in SETTINGS.get(setting, ())
        floor = floors.get(setting) if same else min(floors.values(), default=None)
        end = reaching(curve, floor - LEFT) if floor else None
        losses = [f"{curve[update]:.3f}" for update in shown]
        said = f"{end:,.0f}" if end else "not" if floor else ""
        cells.append([*named(row), *losses, said])
    cells += [[*named(each), *[NOT_RUN] * 6] for each in missing(results, part=part)]
    updates = [f"{update:,}" for update in shown]
    heads = ["encoding", "setting", "seed", *updates, "plateau ends"]
    layers = ", layers of ModernBERT" if "modern" in recipe["arch"] else ""
    return [
        f"### `{part}`",
        "",
        f"The base: {recipe['updates']:,} updates of {recipe['batch_size']} × "
        f"{recipe['tokens_per_sample']} tokens, learning rate {recipe['lr']:g}{layers}.",
        "",
        *table(heads, cells),
        "",
    ]


def named(row: dict[str, Any]) -> list[str]:
    """Cells that name a run of part 1."""
    return [f"`{row['encoding']}`", f"`{row['setting']}`", str(row["seed"])]


def rates(results: Results, size: Size, out: Path) -> Lines:
    """Loss by learning rate."""
    found = by_rate(results, size.name)
    if not found:
        return ["### Learning rates", "", "Not run.", ""]
    planned = missing(results, part=f"rates, {size.name}")
    tried = sorted({*chain(*found.values()), *(row["lr"] for row in planned)})
    cells = []
    for name, own in found.items():
        said = {rate: f"{loss:.3f}" for rate, loss in own.items()}
        if min(own) < (best := best_rate(own)) < max(own):
            said[best] = f"**{said[best]}**"
        said |= {row["lr"]: NOT_RUN for row in planned if row["encoding"] == name}
        cells.append([f"`{name}`", *(said.get(rate, "") for rate in tried)])
    image = f"rates_{size.name}.png"
    draw_rates(found, size.shorter.updates, out / image, results["command"])
    return [
        "### Learning rates",
        "",
        f"Loss in bits after {size.shorter.updates:,} updates, one seed. The best is bold if it "
        "is inside the range of the rates that were tried. Empty: not planned.",
        "",
        *table(["encoding", *(f"{rate:g}" for rate in tried)], cells),
        "",
        f"![Loss by learning rate]({image})",
        "",
    ]


def summary(found: Finals, time: dict[str, list[float]], modern: Finals) -> Lines:
    """What decides between the encodings, the lowest loss first; losses of `modern` beside it."""
    learned = found.get("learned")
    cells = []
    for name, own in by_loss(found).items():
        blimp = [row["blimp"]["mean"] for row in own.rows if "blimp" in row]
        apart = paired(own.losses, learned.losses) if learned and name != "learned" else []
        cells.append(
            [
                f"`{name}`",
                spread(time[name], "{:.2f}") if name in time else NOT_RUN,
                _loss(own),
                difference(apart).plain(2) if apart else "0" if name == "learned" else NOT_RUN,
                *([_loss(modern.get(name))] if modern else []),
                with_interval(blimp, 1) if blimp else NOT_RUN,
                _beyond(own),
            ]
        )
    heads = ["encoding", "time, × `learned`", "loss, bits", "loss, Δ bits"]
    heads += ["loss, ModernBERT's layers"] if modern else []
    heads += ["BLiMP, %", "16 times the length, Δ bits"]
    there = "Loss, ModernBERT's layers: that of part 6, at the rates tuned there. "
    return [
        "### Summary",
        "",
        "Time of an update relative to `learned`, in short trainings of all encodings in turn: "
        "the median (lowest to highest). Loss: per masked token of held-out text after the last "
        "update, and its difference from `learned`, paired by seed. "
        f"{there if modern else ''}BLiMP: mean accuracy over the 67 paradigms, without pairs "
        "longer than the trained length; chance is 50, and BabyLM's baseline of 2026 for 10 M "
        "words (`BabyLM-2026-Baseline-GPT2-Strict-Small`) has 65.1. 16 times the length: growth "
        "of the loss of the same tokens, without further training, and with the one option for "
        "which it is lowest on these tokens. ±: 95 % interval over the seeds (Student's t), for "
        "each comparison alone.",
        "",
        *table(heads, cells),
        "",
    ]


def _loss(found: Final | None) -> str:
    return with_interval(list(found.losses.values()), 2) if found else NOT_RUN


def _beyond(found: Final) -> str:
    """Growth of the loss at 16 times the trained length, as it is and with the best option."""
    ways = found.rows[0].get("longer", {})
    if not ways:
        return NOT_RUN
    changes = {way: growth(found, way) for way in ways if "," not in way}
    best = min(changes, key=lambda way: changes[way].mean)
    said = changes[""].plain(2)
    return f"{said}; {best}: {changes[best].plain(2)}" if best else said


def losses(found: Finals) -> Lines:
    """Parameters, learning rate, the final loss of each seed, and the end of the plateau."""
    seeds = sorted({seed for own in found.values() for seed in own.losses})
    base = found["learned"].rows[0]["parameters"] if "learned" in found else None
    cells = []
    for name, own in by_loss(found).items():
        size = own.rows[0]["parameters"]
        more = f" ({size / base - 1:+.1%})" if base and size != base else ""
        by_seed = [f"{own.losses[k]:.3f}" if k in own.losses else NOT_RUN for k in seeds]
        ends = [plateau(found, name)] if "none" in found else []
        cells.append([f"`{name}`", f"{size:,}{more}", f"{own.rows[0]['lr']:g}", *by_seed, *ends])
    heads = ["encoding", "parameters (from `learned`)", "lr", *(f"seed {seed}" for seed in seeds)]
    said = "Bits per masked token"
    if "none" in found:
        heads.append("plateau ends")
        said += ", and after which share of the updates the plateau ends (see 1)"
    return ["### Final losses", "", f"{said}.", "", *table(heads, cells), ""]


def phenomena(found: Finals) -> Lines:
    """Accuracy on BLiMP by phenomenon, mean over the seeds."""
    if not (ranked := shares(by_loss(found))):
        return []
    cells = [
        [key.replace("_", " "), *(f"{own[key]:.1f}" for own in ranked.values())]
        for key in next(iter(ranked.values()))
    ]
    heads = ["phenomenon, %", *(f"`{name}`" for name in ranked)]
    return ["### BLiMP by phenomenon", "", *table(heads, cells), ""]


def longer(found: Finals, trained: int) -> Lines:
    """Losses at longer texts, without further training."""
    lengths = [k * (trained - 1) + 1 for k in FACTORS]
    cells = []
    for name, own in found.items():
        for way in own.rows[0].get("longer", {}):
            means = [row["longer"][way]["mean"] for row in own.rows]
            values = [f"{mean(each[str(k)] for each in means):.3f}" for k in FACTORS]
            title = f"`{name}`" + (f", {way}" if way else "")
            cells.append([title, *values, growth(own, way).written(3)])
    if not cells:
        return []
    return [
        "### Longer texts",
        "",
        "Loss of the same held-out tokens in sequences of 1 to 16 times the trained length, mean "
        "over the seeds, without further training. All predicted tokens are masked. In the final "
        "losses, 80 % of them are, as in training, so those are lower.",
        "",
        *table(["encoding", *(f"{n:,}" for n in lengths), "growth"], cells),
        "",
    ]


def report(out: Path) -> None:
    """Write the report of the results so far."""
    results = read_results(out)
    sizes = [size for size in chain(*SIZES.values()) if size.name in results["plan"]]
    floors = results["plan"]["context_free"]
    found_all = [finals(results, size.name) for size in sizes]
    modern = found_all[2] if len(found_all) > 2 else {}
    lines = ["# Benchmark of position encodings", ""]
    if modern:
        draw_layers(found_all[0], modern, out / "layers.png", results["command"])
        lines += ["![Final losses on both kinds of layers](layers.png)", ""]
    lines += first_part(results)
    for size, found in zip(sizes, found_all, strict=True):
        lines += [f"## {size.name}", "", *rates(results, size, out)]
        if found:
            time = times(results, size.name)
            tokens = size.recipe.tokens_per_sample
            lines += [
                *summary(found, time, modern if found is found_all[0] else {}),
                *draw(found, time, floors[str(tokens)], size.name, out, results["command"]),
            ]
            lines += losses(found)
            lines += [*phenomena(found), *longer(found, tokens)]
    lines += [
        "## One run",
        "",
        "`--only` with a name from `results.json` repeats a run, as in `--only "
        "'rates, 2x128/rope/0.004/1'`. Final runs need all rates of their encoding (README.md).",
        "",
    ]
    write_report(out, results, lines)


if __name__ == "__main__":
    script.run_report(report)
