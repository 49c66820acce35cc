"""Print the closing tables of the quickstart.

    python -m examples.quickstart.report WORK

WORK is .quickstart or .quickstart-text; reads WORK/losses/losses.json and, where they are there,
WORK/results/results.json and WORK/lengths/lengths.json; writes nothing.
"""

import json
import sys
from pathlib import Path
from typing import Any

#: Validations that the table shows.
ROWS = 6
NAMES = ("tupe_r", "learned")
NEXT = """
Next:
  source .venv/bin/activate
  python examples/quickstart/tour.py   # what you can do with a model, in cells
  bash scripts/test.sh                 # the test suite
  bash scripts/quickstart.sh --text FILE   # the same with a text of your own"""
NEXT_OWN = """
Next: load the model as examples/quickstart/README.md shows, or train a larger one as
examples/pretraining/README.md describes"""


def loss_table(losses: dict[str, Any]) -> list[str]:
    """Validation losses of both encodings and their difference."""
    tupe = losses["bits"]["tupe_r"]
    learned = losses["bits"]["learned"]
    rows = list(zip(losses["updates"], tupe, learned, strict=True))
    step = -(-len(rows) // ROWS)
    chosen = rows[step - 1 :: step]
    if chosen[-1] != rows[-1]:
        chosen.append(rows[-1])
    lines = [
        "bits per masked token, validation (lower is better; one run, seed 1)",
        f"{'updates':>9}{'tupe_r':>9}{'learned':>9}{'difference':>12}",
        *(f"{n:>9,}{a:>9.2f}{b:>9.2f}{b - a:>12.2f}" for n, a, b in chosen),
    ]
    return [*lines, f"token frequencies alone, without context: {losses['context_free']:.2f}"]


def length_table(lengths: dict[str, Any]) -> list[str]:
    """Losses of both encodings at each length."""
    rows = zip(lengths["tokens"], *(lengths["bits"][name] for name in NAMES), strict=True)
    return [
        "",
        "part of this text in longer sequences, without further training (all masked tokens are",
        "<mask>, so the losses are higher than above)",
        f"{'tokens':>9}{NAMES[0]:>9}{NAMES[1]:>9}",
        *(f"{n:>9,}{a:>9.2f}{b:>9.2f}" for n, a, b in rows),
    ]


def shown(pieces: dict[str, float]) -> str:
    """Pieces and their probabilities in percent."""
    return ", ".join(f"{piece} ({100 * p:.0f} %)" for piece, p in pieces.items())


def result_rows(results: dict[str, Any]) -> list[tuple[str, str]]:
    """Accuracies and filled masks."""
    return [
        (f"accuracy on {results['test_sentences']} held-out film reviews", ""),
        ("  classifier, tupe_r from scratch", f"{results['accuracy']:.1f} %"),
        ("  the more frequent class, always", f"{results['majority_accuracy']:.1f} %"),
        ("masks filled by tupe_r", ""),
        *((f"  {sentence}", shown(pieces)) for sentence, pieces in results["masks"].items()),
        ("", ""),
    ]


def render(
    losses: dict[str, Any],
    results: dict[str, Any] | None,
    lengths: dict[str, Any] | None,
    work: Path,
) -> str:
    """The tables as text.

    Args:
        losses: as `losses.read_losses` returns them.
        results: as `evaluate.evaluate` returns them; None for a text of one's own.
        lengths: as `lengths.measured` returns them; None for a text of one's own.
        work: the folder of all output.
    """
    rows = [
        *(result_rows(results) if results else []),
        ("losses of both", f"{work}/losses/losses.png"),
        ("positional correlations of tupe_r", f"{work}/figures/positional_correlations.png"),
        ("pre-trained model", f"{work}/models/pretrained"),
        *([("classifier", f"{work}/models/sentiment")] if results else []),
        ("logs", f"{work}/logs, {work}/pretrain/*/log.txt"),
    ]
    width = max(len(name) for name, _ in rows) + 2
    lines = [f"{name:<{width}}{value}".rstrip() for name, value in rows]
    longer = length_table(lengths) if lengths else []
    last = NEXT if results else NEXT_OWN
    return "\n".join(["", *loss_table(losses), *longer, "", *lines, last])


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    files = [folder / name / f"{name}.json" for name in ("losses", "results", "lengths")]
    print(render(*(json.loads(f.read_text()) if f.exists() else None for f in files), folder))
