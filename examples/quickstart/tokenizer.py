"""Train a sentencepiece vocabulary on the pre-training text and split all text into its pieces.

    python -m examples.quickstart.tokenizer TEXT OUT

TEXT is the output of prepare.py. OUT gets

    sentencepiece.bpe.model              the vocabulary, BPE
    pretrain.train, pretrain.valid, train.input0, valid.input0, test.input0
                                         the text, its pieces separated by spaces
"""

from __future__ import annotations

import sys
from pathlib import Path

from examples.shared import pieces, script

#: Few symbols, each of which is frequent: models then learn sooner to use word order.
VOCABULARY = 1000
FILES = ("pretrain.train", "pretrain.valid", "train.input0", "valid.input0", "test.input0")


def main() -> None:
    """See the module's docstring."""
    text, out = map(Path, sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    model = out / pieces.MODEL
    # All characters: the text has few, and an unknown character could not be decoded.
    pieces.train([text / FILES[0]], model, VOCABULARY, "VOCABULARY", character_coverage=1.0)
    for name in FILES:
        lines = pieces.encode(model, (text / name).read_text(encoding="utf-8").splitlines())
        (out / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    script.run(main)
