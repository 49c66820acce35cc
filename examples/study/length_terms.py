"""What distance explains of TUPE's positional term, and what continuing it by distance costs.

    python -m examples.study.length_terms DATA_BIN LENGTH BLOCKS OUT NAME=CHECKPOINT...

Reads masked models with `tupe_a` or `tupe_r` that were trained at LENGTH tokens, each with its
dict.txt beside it, and measures them as length_measures.py does, on BLOCKS blocks of the held-out
text, without further training. Writes OUT/terms.json, by model

    explained   of each head, the share of the variance of its term over the pairs of positions,
                [CLS] left out, that their distance explains
    ways        the losses with --extend-positions toeplitz, also with other values of
                --toeplitz-far and --toeplitz-slope

and the report of length.py again if it is in OUT. What the file has already is left out.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from examples.shared import script
from examples.shared.results import NAME
from examples.study.length_measures import FACTORS, KINDS, measure, read_blocks
from examples.study.length_report import TERMS, report
from tupe_fairseq import TupeRobertaModel, UsageError
from tupe_fairseq.files import replacing

KIND = KINDS["masked"]


def explained(cells: Tensor) -> list[float]:
    """The share of each head's variance that the distance explains, for cells H×N×N."""
    size = cells.size(-1)
    diagonals = [cells.double().diagonal(d, -2, -1) for d in range(1 - size, size)]
    within = sum((each - each.mean(-1, keepdim=True)).square().sum(-1) for each in diagonals)
    flat = cells.double().flatten(1)
    total = (flat - flat.mean(-1, keepdim=True)).square().sum(-1)
    return (1 - within / total).tolist()


@torch.no_grad()
def explained_by_distance(checkpoint: Path, data: Path, trained: int) -> list[float]:
    """As `explained`, of a model."""
    hub = TupeRobertaModel.from_pretrained(checkpoint.parent, checkpoint.name, data)
    first = int(hub.model.encoder.sentence_encoder.embed_positions.untie_cls)
    return explained(hub.positional_correlations(trained)[:, first:, first:])


def ways(trained: int) -> dict[str, dict[str, Any]]:
    """Options with which a model is measured, by their name, at a trained length."""
    # Eighths of the trained length but its half, the default.
    distances = (trained // 8, trained // 4, 3 * trained // 4)
    changes = {f"far {far}": {"toeplitz_far": far} for far in distances}
    found = {"default": {}, **changes}
    return found | {f"slope {s:g}": {"toeplitz_slope": s} for s in (0.0, 0.5, 2.0)}


def measured(
    changed: dict[str, Any], checkpoint: Path, data: Path, trained: int, blocks: Tensor
) -> dict[str, Any]:
    """Losses as those of length_measures.py."""
    changed = {"extend_positions": "toeplitz", "trained_positions": trained, **changed}
    return measure(KIND, checkpoint, data, trained, blocks, changed)


def main() -> None:
    """See the module's docstring."""
    if len(sys.argv) < 6 or not all("=" in word for word in sys.argv[5:]):
        raise UsageError("arguments are needed: DATA_BIN LENGTH BLOCKS OUT NAME=CHECKPOINT...")
    data, length, count, out, *models = sys.argv[1:]
    trained, path = int(length), Path(out) / TERMS
    blocks = read_blocks(Path(data), FACTORS[-1] * (trained - KIND.special), int(count))
    path.parent.mkdir(parents=True, exist_ok=True)
    found = json.loads(path.read_text()) if path.exists() else {"length": trained, "models": {}}
    for word in models:
        name, _, given = word.partition("=")
        model, checkpoint = found["models"].setdefault(name, {"ways": {}}), Path(given)
        model["explained"] = explained_by_distance(checkpoint, Path(data), trained)
        for way, changed in ways(trained).items():
            if way not in model["ways"]:
                losses = measured(changed, checkpoint, Path(data), trained, blocks)
                model["ways"][way] = losses
                with replacing(path) as aside:
                    aside.write_text(json.dumps(found, indent=1) + "\n")
    if (path.parent / NAME).exists():
        report(path.parent)


if __name__ == "__main__":
    script.run(main)
