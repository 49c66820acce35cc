"""Binarise the articles of long_inputs.py.

    python -m examples.study.long_inputs_data WHEEL BPE_DIR OUT LENGTH...

BPE_DIR has the tokenizer and the dictionary of the pre-trained model. OUT/LENGTH gets the data of
fairseq's task `sentence_prediction`, with articles cut to LENGTH tokens, <s> and </s> among them;
OUT/counts.json what the report says of them. An article that occurs twice is kept once, and one in
five is held out, in a pseudo-random order that is always the same.
"""

import json
import sys
import zipfile
from pathlib import Path
from statistics import mean, median
from typing import Any

from fairseq.data import Dictionary
from torch import Tensor

from examples.glue.preprocess import written
from examples.glue.tokenizer import Tokenizer
from examples.quickstart.prepare import letters, shuffled
from examples.shared import script
from tupe_fairseq import UsageError
from tupe_fairseq.files import replacing

#: In the order of the model's outputs.
SECTIONS = ("business", "entertainment", "politics", "sports", "tech")
#: Share that is held out.
VALID = 0.2
#: An example: ids of the article without special tokens, and its section.
Example = tuple[Tensor, str]


def read_articles(wheel: Path) -> dict[str, str]:
    """The section of each article by its text, title first; one of each text.

    Raises:
        UsageError: the file holds none.
    """
    sections = {}
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name in sorted(archive.namelist()):
                if name.endswith(".txt") and Path(name).parent.name in SECTIONS:
                    # One article has a pound sign in Latin-1.
                    text = archive.read(name).decode("utf-8", errors="replace")
                    sections[" ".join(text.split())] = Path(name).parent.name
    except zipfile.BadZipFile as error:
        raise UsageError(f"{wheel} is no wheel: {error}.") from error
    if not sections:
        raise UsageError(f"{wheel} has no folders {', '.join(SECTIONS)} with articles.")
    return sections


def splits_of(sections: dict[str, str], tokenizer: Tokenizer) -> dict[str, list[Example]]:
    """Encoded articles to train with and held out."""
    of_letters = {letters(text): section for text, section in sections.items()}
    order = shuffled(sections)
    examples = [(tokenizer.encode(text), of_letters[letters(text)]) for text in order]
    end = round(VALID * len(examples))
    return {"train": examples[end:], "valid": examples[:end]}


def write_split(
    out: Path, split: str, examples: list[Example], words: Dictionary, longest: int
) -> None:
    """Write the articles of a split, cut to a length, and their sections."""
    names = Dictionary()
    for section in SECTIONS:
        names.add_symbol(section, n=sum(found == section for _, found in examples))
    with written(out / "input0", split, words) as add:
        for ids, _ in examples:
            # <s> is added in training, </s> here.
            add(ids[: longest - 2].tolist())
    with written(out / "label", split, names) as add:
        for _, section in examples:
            add([names.index(section)])


def counts_of(splits: dict[str, list[Example]], lengths: list[int]) -> dict[str, Any]:
    """Sizes, the median length in tokens, and in percent: longer articles, the best constant."""
    sizes = [len(ids) + 2 for examples in splits.values() for ids, _ in examples]
    held_out = [section for _, section in splits["valid"]]
    trained = [section for _, section in splits["train"]]
    constant = max(SECTIONS, key=trained.count)
    return {
        "sections": list(SECTIONS),
        "splits": {split: len(examples) for split, examples in splits.items()},
        "median": round(median(sizes)),
        "longer": {str(n): 100 * mean(size > n for size in sizes) for n in lengths},
        "constant": 100 * held_out.count(constant) / len(held_out),
    }


def counted(folder: Path) -> dict[str, Any]:
    """What was written to OUT/counts.json."""
    return json.loads((folder / "counts.json").read_text())


def main() -> None:
    """See the module's docstring."""
    wheel, bpe, out = map(Path, sys.argv[1:4])
    lengths, tokenizer = [int(word) for word in sys.argv[4:]], Tokenizer(bpe)
    splits = splits_of(read_articles(wheel), tokenizer)
    for longest in lengths:
        for split, examples in splits.items():
            write_split(out / str(longest), split, examples, tokenizer.dictionary, longest)
    with replacing(out / "counts.json") as aside:
        aside.write_text(json.dumps(counts_of(splits, lengths), indent=1) + "\n")


if __name__ == "__main__":
    script.run(main)
