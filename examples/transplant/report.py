"""Tables, hypotheses and the figure of experiment.py.

    python -m examples.transplant.report DIRECTORY

DIRECTORY has results.json, and gets report.md and fidelity.png.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from examples.shared import script
from examples.shared.markdown import NOT_RUN, spread, table
from examples.shared.panels import label_ends, panels
from examples.shared.results import Results, Verdict, read_results, rows, write_report
from tupe_fairseq.plots import save_png

Found = dict[str, list[dict[str, Any]]]
MEASURES = {
    "STS-B": lambda run: run["sts_b"],
    "gap, shuffled": lambda run: run["shuffled"]["gap"],
    "rank, shuffled": lambda run: run["shuffled"]["rank"],
    "gap, swapped": lambda run: run["swapped"]["gap"],
    "rank, swapped": lambda run: run["swapped"]["rank"],
    "error": lambda run: run["curve"][-1]["error"],
    "updates": lambda run: run["curve"][-1]["update"],
    "minutes": lambda run: run["curve"][-1]["minutes"],
}
#: Lengths beyond those of the source.
BEYOND = ("1024", "2048")
FORMS = {"STS-B": "{:.2f}", "updates": "{:.0f}", "minutes": "{:.1f}"}


def by_name(results: Results, **settings: Any) -> Found:
    """Completed runs of a part, by the name of the model."""
    found: Found = {}
    for row in rows(results, **settings):
        found.setdefault(row["name"], []).append(row)
    return found


def average(runs: list[dict[str, Any]], measure: str) -> float:
    """Over seeds."""
    return mean(MEASURES[measure](run) for run in runs)


def enough(runs: Iterable[Sequence[object]], holds: bool, figures: str) -> Verdict:
    """A verdict that needs three seeds of each of these runs."""
    if min(map(len, runs)) < 3:
        return Verdict(None, f"{figures}; fewer than three seeds")
    return Verdict(holds, figures)


def all_read(results: Results) -> Verdict:
    """H1."""
    found = by_name(results, part="encodings")
    scores = {name: average(runs, "STS-B") for name, runs in found.items() if name != "none"}
    if len(scores) < 7:
        return Verdict(None, NOT_RUN)
    low = min(scores, key=lambda name: scores[name])
    figures = f"lowest: {low} {scores[low]:.2f}"
    return enough(found.values(), scores[low] >= 86.4, figures)


def blind(results: Results) -> Verdict:
    """H2."""
    runs = by_name(results, part="encodings").get("none")
    if not runs:
        return Verdict(None, NOT_RUN)
    loss = runs[0]["sts_b_of_source"] - average(runs, "STS-B")
    rank = average(runs, "rank, shuffled")
    figures = f"{loss:.2f} points below SOURCE, rank {rank:.3f}"
    return enough([runs], loss < 1 and rank < 0.5, figures)


def ahead(results: Results) -> Verdict:
    """H3."""
    found = by_name(results, part="encodings")
    if not {"rope", "tupe_r"} <= found.keys():
        return Verdict(None, NOT_RUN)
    ranks = {name: [MEASURES["rank, shuffled"](run) for run in found[name]] for name in found}
    first, second = ranks["rope"], ranks["tupe_r"]
    said = f"rope {spread(first, '{:.3f}')}, tupe_r {spread(second, '{:.3f}')}"
    return enough([first, second], min(first) > max(second), said)


def saves(results: Results) -> Verdict:
    """H4."""
    fitted = by_name(results, part="encodings").get("tupe_r", [])
    other = by_name(results, part="starts").get("tupe_r+mean", [])
    if not (fitted and other):
        return Verdict(None, NOT_RUN)
    early = mean(run["curve"][-2]["rank"] for run in fitted)
    late = mean(run["curve"][-1]["rank"] for run in other)
    update = fitted[0]["curve"][-2]["update"]
    last = other[0]["curve"][-1]["update"]
    figures = f"held-out rank {early:.3f} at {update}, {late:.3f} at {last} from the mean position"
    return enough([fitted, other], early >= late, figures)


def in_time(results: Results) -> Verdict:
    """H5."""
    runs = by_name(results, part="order").get("tupe_r+1200")
    if not runs:
        return Verdict(None, NOT_RUN)
    gap, rank = (average(runs, f"{name}, shuffled") for name in ("gap", "rank"))
    minutes = average(runs, "minutes")
    figures = f"gap {gap:.3f}, rank {rank:.3f} after {minutes:.1f} minutes; one seed, as planned"
    return Verdict(abs(gap) <= 0.01 and rank >= 0.95 and minutes <= 15, figures)


def accepts(results: Results) -> Verdict:
    """H6."""
    found = by_name(results, part="tasks", task="CoLA")
    if not {"source", "order/tupe_r+1200"} <= found.keys():
        return Verdict(None, NOT_RUN)
    scores = {name: [run["score"] for run in runs] for name, runs in found.items()}
    source, made = scores["source"], scores["order/tupe_r+1200"]
    figures = f"CoLA, mean: {mean(source):.2f} and {mean(made):.2f}"
    return enough([source, made], mean(made) >= mean(source) - 1, figures)


def extends(results: Results) -> Verdict:
    """H7."""
    found = {(row["name"], row["way"]): row["lengths"] for row in rows(results, part="ways")}
    pair = ("source", "chunks"), ("tupe_r", "plain")
    if not found.keys() >= {*pair}:
        return Verdict(None, NOT_RUN)
    source, made = ([found[each][length]["found"] for length in BEYOND] for each in pair)
    said = " and ".join(", ".join(f"{100 * x:.0f} %" for x in each) for each in (made, source))
    return Verdict(all(a >= b for a, b in zip(made, source, strict=True)), f"{said} (chunks)")


def regains(results: Results) -> Verdict:
    """H8."""
    names = ("source", "encodings/deberta", "pairs/deberta")
    every, shares, said = [], [], []
    for task in ("STS-B", "MRPC"):
        found = by_name(results, part="tasks", task=task)
        if not found.keys() >= {*names}:
            return Verdict(None, NOT_RUN)
        scores = [[run["score"] for run in found[name]] for name in names]
        source, without, pairs = map(mean, scores)
        every += scores
        shares.append((pairs - without) / (source - without))
        said.append(f"{task}, mean: {source:.1f}, {without:.1f} and {pairs:.1f}")
    return enough(every, min(shares) >= 0.5, "; ".join(said))


HYPOTHESES: dict[str, Callable[[Results], Verdict]] = {
    "H1": all_read,
    "H2": blind,
    "H3": ahead,
    "H4": saves,
    "H5": in_time,
    "H6": accepts,
    "H7": extends,
    "H8": regains,
}


def lines(results: Results) -> list[str]:
    """The report."""
    said = ["# Transplants", "", "Median over seeds (lowest to highest). See plan.md.", ""]
    for part in ("encodings", "starts", "order", "pairs", "long"):
        found = by_name(results, part=part)
        cells = [
            [name, len(runs)]
            + [
                spread(map(read, runs), FORMS.get(each, "{:.3f}"))
                for each, read in MEASURES.items()
            ]
            for name, runs in found.items()
        ]
        said += [f"## {part}", "", *table(["name", "seeds", *MEASURES], cells), ""]
    said += ["## tasks", "", *_tasks(results), ""]
    said += ["## long texts", "", *_ways(results), ""]
    verdicts = {name: judge(results) for name, judge in HYPOTHESES.items()}
    judged = [[name, found.word, found.figures] for name, found in verdicts.items()]
    return [*said, "## Hypotheses", "", *table(["", "verdict", "figures"], judged), ""]


def _tasks(results: Results) -> list[str]:
    """Scores after fine-tuning; those by finetune.sh are in rows of their own."""
    found = {"": rows(results, part="tasks"), ", finetune.sh": rows(results, part="fairseq")}
    tasks = sorted({row["task"] for each in found.values() for row in each})
    cells = []
    for said, runs in found.items():
        for name in dict.fromkeys(row["name"] for row in runs):
            own = [row for row in runs if row["name"] == name]
            scores = [[row["score"] for row in own if row["task"] == task] for task in tasks]
            cells.append([name + said, *(spread(each, "{:.1f}") for each in scores)])
    return table(["model", *tasks], cells)


def _ways(results: Results) -> list[str]:
    """The table of ways to read long texts."""
    found = rows(results, part="ways")
    lengths = [*found[0]["lengths"]] if found else []
    cells = []
    for row in found:
        of_lengths = [row["lengths"][each] for each in lengths]
        cosines = [f"{each['cosine']:.3f}" if "cosine" in each else "-" for each in of_lengths]
        shares = [f"{100 * each['found']:.0f} % ({each['rank']:.3f})" for each in of_lengths]
        cells.append([row["name"], row["way"], *shares, *cosines])
    header = [f"found at {each}" for each in lengths] + [f"cosine at {each}" for each in lengths]
    return table(["model", "way", *header], cells)


def draw(results: Results, path: Path) -> None:
    """Error and rank on held-out texts by updates, seed 1 of each encoding."""
    found = [*by_name(results, part="encodings", seed=1).items()]
    if not found:
        return
    figure, both = panels(9, 3.6, columns=2)
    titles = {"error": "error of token features", "rank": "rank correlation, shuffled words"}
    for axes, (measure, title) in zip(both, titles.items(), strict=True):
        colors, ends = {}, {}
        for number, (name, (run,)) in enumerate(found):
            color = f"C{number}"
            points = [(each["update"], each[measure]) for each in run["curve"]]
            axes.plot(*zip(*points, strict=True), color=color, marker="o", markersize=3)
            colors[name], ends[name] = color, points[-1]
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_xlabel("updates")
        figure.draw_without_rendering()
        label_ends(axes, ends, colors, "{:.2f}")
    save_png(figure, path, f"python -m examples.transplant.report {path.parent.name}")


def report(out: Path) -> None:
    """Write report.md and the figure."""
    results = read_results(out)
    draw(results, out / "fidelity.png")
    write_report(out, results, lines(results))


if __name__ == "__main__":
    script.run_report(report)
