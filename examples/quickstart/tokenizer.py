"""Train sentencepiece vocabularies on the pre-training text, and split text into pieces.

    python -m examples.quickstart.tokenizer TEXT OUT

TEXT is the output of prepare.py or of own_text.py, which has no reviews. OUT gets a folder for
each of `VOCABULARIES` whose files are there, with

    sentencepiece.bpe.model     the vocabulary, BPE
    dict.txt                    fairseq's dictionary, with all of its pieces
    NAME                        each file of text, its pieces separated by spaces
    preprocessing.json          that the text is lowercased, for `from_pretrained`
"""

import sys
from pathlib import Path

from examples.pretraining.vocabularies import load_sentencepiece, write_dictionary
from examples.shared import pieces, script
from tupe_fairseq.fairseq.hub.files import record_preprocessing

TRAINING = "pretrain.train"
#: Symbols, and files of text. Few symbols, each of which is frequent, let models learn sooner to
#: use word order. With many, most words remain whole, which helps classification.
VOCABULARIES = {
    "pretrain": (1000, (TRAINING, "pretrain.valid")),
    "reviews": (8000, ("train.input0", "valid.input0", "test.input0")),
}


def main() -> None:
    """See the module's docstring."""
    text, out = map(Path, sys.argv[1:])
    for folder, (size, names) in VOCABULARIES.items():
        if not all((text / name).exists() for name in names):
            continue
        (out / folder).mkdir(parents=True, exist_ok=True)
        model = out / folder / pieces.MODEL
        # All characters, because an unknown one could not be decoded. A text of one's own may
        # have many, as Chinese has.
        characters = len(set((text / TRAINING).read_text(encoding="utf-8")))
        size = max(size, 2 * characters)
        pieces.train([text / TRAINING], model, size, "VOCABULARIES", character_coverage=1.0)
        write_dictionary(load_sentencepiece(model), out / folder / "dict.txt")
        # prepare.py and own_text.py have lowercased it.
        record_preprocessing(out / folder, lowercase=True)
        for name in names:
            lines = pieces.encode(model, (text / name).read_text(encoding="utf-8").splitlines())
            (out / folder / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")


if __name__ == "__main__":
    script.run(main)
