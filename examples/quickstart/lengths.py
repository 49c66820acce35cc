"""Measure both pre-trained models on texts up to 16 times as long as those of pre-training.

    python -m examples.quickstart.lengths MODELS DATA OUT

The models are not trained further: TUPE-R is continued by distance, learned positions by
hierarchical decomposition. Writes OUT/lengths.json: the lengths, and by encoding the loss at each,
in bits per masked token of the same held-out text.
"""

import json
import sys
from pathlib import Path
from typing import Any

from examples.shared import script
from examples.study.longer_texts import FACTORS, measure, read_blocks
from tupe_fairseq.base.files import replacing

#: Tokens of a sequence in pre-training, with <s>; blocks of held-out text.
TRAINED = 32
BLOCKS = 40
#: Folder and --extend-positions of each encoding.
MODELS = {"tupe_r": ("pretrained", "toeplitz"), "learned": ("learned", "hierarchical")}


def measured(models: Path, data: Path) -> dict[str, Any]:
    """What lengths.json holds."""
    blocks = read_blocks(data, TRAINED, BLOCKS)
    found: dict[str, Any] = {"tokens": [k * (TRAINED - 1) + 1 for k in FACTORS], "bits": {}}
    for encoding, (folder, extension) in MODELS.items():
        way = {"extend_positions": extension}
        losses = measure(models / folder / "model.pt", data, TRAINED, blocks, way)["mean"]
        found["bits"][encoding] = [losses[str(k)] for k in FACTORS]
    return found


def main() -> None:
    """See the module's docstring."""
    # fairseq takes a relative path that begins with a dot as relative to the checkpoint.
    models, data, out = (Path(word).absolute() for word in sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    found = measured(models, data)
    with replacing(out / "lengths.json") as aside:
        aside.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    script.run(main)
