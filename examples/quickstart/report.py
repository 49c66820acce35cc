"""Print the closing table of the quickstart.

Run as `python report.py WORK`, where WORK is .quickstart; it reads WORK/results/results.json and
writes nothing.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def table(results: dict[str, Any]) -> list[tuple[str, str]]:
    """Rows of what was measured: name and value."""
    sentence = results["sentence"]
    words = ", ".join(f"{word} ({100 * p:.0f} %)" for word, p in results["words"])
    return [
        ("perplexity of masked words, validation", ""),
        ("  before pre-training", f"{results['perplexity_before']:.0f}"),
        ("  after", f"{results['perplexity_after']:.0f}"),
        (f"accuracy on {results['test_sentences']} unseen film reviews", ""),
        ("  fine-tuned model", f"{results['accuracy']:.1f} %"),
        ("  the more frequent class, always", f"{results['majority_accuracy']:.1f} %"),
        (f'"{sentence}"', words),
    ]


def files(work: Path) -> list[tuple[str, str]]:
    """Rows of what there is to look at: name and path."""
    return [
        ("pre-trained model", f"{work}/models/pretrained"),
        ("fine-tuned model", f"{work}/models/sentiment"),
        ("heat maps, one per head", f"{work}/figures/positional_correlations.png"),
        ("logs", f"{work}/logs"),
    ]


def next_steps(work: Path) -> list[str]:
    """Commands to go on with."""
    return [
        "source .venv/bin/activate",
        'python -c "from tupe_fairseq import TupeRobertaModel; '
        f"print(TupeRobertaModel.from_pretrained('{work}/models/pretrained')"
        ".fill_mask('I <mask> this film.'))\"",
        "bash scripts/test.sh        # the test suite",
        "examples/quickstart/README.md, to do the same with text of your own",
    ]


def render(results: dict[str, Any], work: Path) -> str:
    """The table as text."""
    rows = [*table(results), ("", ""), *files(work)]
    width = max(len(name) for name, _ in rows) + 2
    lines = [f"{name:<{width}}{value}".rstrip() for name, value in rows]
    return "\n".join(["", *lines, "", "Next:", *(f"  {step}" for step in next_steps(work))])


def main(work: str) -> None:
    """See the module's text."""
    folder = Path(work)
    print(render(json.loads((folder / "results" / "results.json").read_text()), folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
