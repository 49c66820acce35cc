"""The table and the figure of compare_encodings.py."""

import json
import sys
from pathlib import Path
from typing import Any

import torch

from examples.shared import markdown
from examples.shared.jobs import read_log
from examples.shared.markdown import NOT_RUN, spread
from tupe_fairseq.checkpoints.reading import read_checkpoint
from tupe_fairseq.checkpoints.restoring import progress
from tupe_fairseq.checkpoints.whole import newest_whole_checkpoint
from tupe_fairseq.files import replacing
from tupe_fairseq.plots import figure_class, save_png

BASELINE = "learned"


def updates_done(directory: Path) -> int:
    """Updates of the newest complete checkpoint, 0 if there is none."""
    checkpoint = newest_whole_checkpoint(directory)
    return progress(read_checkpoint(checkpoint))[0] if checkpoint else 0


def count_parameters(checkpoint: Path) -> int:
    """Trained parameters; the LM head shares its weight with the word embeddings."""
    model = read_checkpoint(checkpoint)["model"]
    return sum(v.numel() for key, v in model.items() if key != "encoder.lm_head.weight")


def summarise(directory: Path) -> dict[str, Any]:
    """Parameters, validation losses by update, seconds per update of each round of an encoding."""
    losses, seconds = {}, []
    updates = 0
    for kind, entry in read_log(directory / "log.txt"):
        if kind == "valid":
            updates = int(entry["valid_num_updates"])
            losses[updates] = entry["valid_loss"]
        elif kind == "clock" and entry["updates"] > 0:
            seconds.append((updates, entry["seconds"] / entry["updates"]))
    checkpoint = newest_whole_checkpoint(directory)
    return {
        "parameters": checkpoint and count_parameters(checkpoint),
        "losses": losses,
        "seconds": dict(seconds),
    }


def relative_speed(result: dict[str, Any], base: dict[str, Any]) -> str:
    """Median over the rounds of both, and the range."""
    shared = result["seconds"].keys() & base["seconds"].keys()
    return spread(base["seconds"][r] / result["seconds"][r] for r in shared)


def table(results: dict[str, Any], settings: str) -> str:
    """Markdown, lowest loss first, at the last update that all encodings have reached."""
    begun = [set(result["losses"]) for result in results.values() if result["losses"]]
    at = max(set.intersection(*begun), default=0) if begun else 0
    clock = "wall-clock" if torch.cuda.is_available() else "processor"
    rows = []
    for name in sorted(results, key=lambda n: results[n]["losses"].get(at, float("inf"))):
        result = results[name]
        loss = f"{result['losses'][at]:.3f}" if at in result["losses"] else NOT_RUN
        size = f"{result['parameters']:,}" if result["parameters"] else NOT_RUN
        speed = relative_speed(result, results.get(BASELINE, {"seconds": {}}))
        rows.append([f"`{name}`", size, loss, speed])
    lines = [
        f"Validation loss (bits per masked token) after {at:,} updates. {settings} Speed: {clock} "
        f"time per update of `{BASELINE}` divided by that of the encoding, median over the rounds "
        "(range).",
        "",
        *markdown.table(["encoding", "parameters", "loss", "speed"], rows),
    ]
    return "\n".join(lines) + "\n"


def report(out: Path, encodings: list[str], settings: str) -> None:
    """Write comparison.json, comparison.md and comparison.png from the results so far."""
    results = {name: summarise(out / name) for name in encodings}
    with replacing(out / "comparison.json") as path:
        path.write_text(json.dumps({"settings": settings, "results": results}, indent=1))
    with replacing(out / "comparison.md") as path:
        path.write_text(table(results, settings))
    curves = {name: result["losses"] for name, result in results.items() if result["losses"]}
    if curves:
        draw(curves, settings, out / "comparison.png")


def draw(curves: dict[str, dict[int, float]], settings: str, out: Path) -> None:
    """Loss curves of all encodings; the legend is in the order of their ends."""
    figure = figure_class()(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    names = sorted(curves)
    for i, name in enumerate(sorted(curves, key=lambda n: -list(curves[n].values())[-1])):
        style = ("-", "--", ":")[names.index(name) // 10]
        colour = f"C{names.index(name) % 10}"
        losses = curves[name]
        axes.plot(losses.keys(), losses.values(), style, color=colour, label=name, zorder=i)
    axes.set(xlabel="updates", ylabel="validation loss (bits per masked token)")
    axes.set_title(settings, fontsize=8, wrap=True)
    handles, labels = axes.get_legend_handles_labels()
    place = {"loc": "center left", "bbox_to_anchor": (1, 0.5), "frameon": False}
    axes.legend(handles[::-1], labels[::-1], **place)
    axes.spines[["top", "right"]].set_visible(False)
    save_png(figure, out, markdown.shown(sys.argv, {"OUT": out.parent}))
