"""Print the closing table of the quickstart.

    python -m examples.quickstart.report WORK

WORK is .quickstart; reads WORK/results/results.json and writes nothing.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

NEXT = """
Next:
  source .venv/bin/activate
  python -c "from tupe_fairseq import TupeRobertaModel; \
print(TupeRobertaModel.from_pretrained('{work}/models/pretrained').fill_mask('I <mask> this
film.'))"
  bash scripts/test.sh        # the test suite
  examples/quickstart/README.md, to do the same with text of your own"""


def render(results: dict[str, Any], work: Path) -> str:
    """The table as text."""
    words = ", ".join(f"{word} ({100 * p:.0f} %)" for word, p in results["words"])
    rows = [
        ("perplexity of masked words, validation", ""),
        ("  before pre-training", f"{results['perplexity_before']:.0f}"),
        ("  after", f"{results['perplexity_after']:.0f}"),
        (f"accuracy on {results['test_sentences']} held-out film reviews", ""),
        ("  fine-tuned model", f"{results['accuracy']:.1f} %"),
        ("  the more frequent class, always", f"{results['majority_accuracy']:.1f} %"),
        (f'"{results["sentence"]}"', words),
        ("", ""),
        ("pre-trained model", f"{work}/models/pretrained"),
        ("fine-tuned model", f"{work}/models/sentiment"),
        ("heat maps, one per head", f"{work}/figures/positional_correlations.png"),
        ("logs", f"{work}/logs"),
    ]
    width = max(len(name) for name, _ in rows) + 2
    lines = [f"{name:<{width}}{value}".rstrip() for name, value in rows]
    return "\n".join(["", *lines, NEXT.format(work=work)])


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    print(render(json.loads((folder / "results" / "results.json").read_text()), folder))
