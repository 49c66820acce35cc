"""Draw the validation losses of models that were trained side by side.

    python -m examples.quickstart.losses TRAININGS DATA OUT

TRAININGS holds a folder for each encoding with its log.txt, DATA is the binarised text. Writes
OUT/losses.png and OUT/losses.json.
"""

import json
import sys
from pathlib import Path
from typing import Any

from examples.quickstart.progress import validations
from examples.shared import script
from examples.shared.frequencies import context_free_loss
from examples.shared.panels import draw_floor, panels
from scripts.drawing.plots import save_png
from tupe_fairseq import UsageError
from tupe_fairseq.base.files import replacing
from tupe_fairseq.base.machine import shown

#: Names in the figure, in the order of the table.
NAMES = {"tupe_r": "TUPE-R", "learned": "BERT's learned positions"}
#: Tokens of a sequence in quickstart.sh.
LENGTH = 32


def read_losses(trainings: Path, data: Path) -> dict[str, Any]:
    """Validation losses after the numbers of updates that all trainings have in common.

    Returns:
        `updates`; `bits` per masked token of each encoding; `context_free`: those of a model that
        uses only the frequencies of tokens.

    Raises:
        UsageError: a log has no validations.
    """
    curves = {name: validations(trainings / name / "log.txt") for name in NAMES}
    updates = sorted(set.intersection(*map(set, curves.values())))
    if not updates:
        raise UsageError(f"the logs in {trainings} have no validations in common.")
    bits = {name: [curve[n]["valid_loss"] for n in updates] for name, curve in curves.items()}
    return {"updates": updates, "bits": bits, "context_free": context_free_loss(data, LENGTH)}


def draw(losses: dict[str, Any], out: Path, command: str) -> None:
    """A curve for each encoding, and the loss without context.

    Args:
        losses: as `read_losses` returns them.
        out: a name ending in .png.
        command: that made the figure.
    """
    updates = losses["updates"]
    bits = losses["bits"]
    figure, (axes,) = panels(7, 4)
    draw_floor(axes, losses["context_free"])
    above = {"xytext": (0, 4), "textcoords": "offset points", "fontsize": 9}
    for name, color in zip(NAMES, ("C0", "C3"), strict=True):
        axes.plot(updates, bits[name], color=color, linewidth=2, marker="o", markersize=4)
        end = f"{NAMES[name]}: {bits[name][-1]:.2f}"
        place = {**above, "xytext": (0, -14), "ha": "right", "fontsize": 10}
        axes.annotate(end, (updates[-1], bits[name][-1]), color=color, weight="bold", **place)
    gap = bits["learned"][-1] - bits["tupe_r"][-1]
    axes.set_title(
        f"TUPE-R: validation loss is {abs(gap):.1f} bits {'lower' if gap >= 0 else 'higher'} "
        f"after {updates[-1]:,} updates (one seed, early training)",
        fontsize=10,
        pad=12,
    )
    axes.set(xlabel="updates", ylabel="validation loss (bits per masked token)")
    axes.set_xlim(0)
    low, high = axes.get_ylim()
    axes.set_ylim(low - 0.1 * (high - low), high)
    save_png(figure, out, command)


def main() -> None:
    """See the module's docstring."""
    trainings, data, out = map(Path, sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    losses = read_losses(trainings, data)
    # The step's folder of output is renamed at its end.
    final = out.with_name(out.name.removesuffix(".partial"))
    words = ["python", "-m", "examples.quickstart.losses", trainings, data, final]
    draw(losses, out / "losses.png", shown(words, {}))
    with replacing(out / "losses.json") as aside:
        aside.write_text(json.dumps(losses, indent=1) + "\n")


if __name__ == "__main__":
    script.run(main)
