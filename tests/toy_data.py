"""Toy data as fairseq-preprocess leaves it, written in process: a language of 200 words.

A sentence keeps to one of 20 topics of 10 words and goes through them in order, so that there is
something to learn: a word follows from its neighbours, and a label from the topic.
"""

import random
from collections.abc import Iterable
from pathlib import Path

from fairseq.data import Dictionary, indexed_dataset

from tests.convert import pieces

TOPICS = 20
WORDS_PER_TOPIC = 10


def word_dictionary() -> Dictionary:
    """The dictionary of all toy text; the same everywhere, so that models fit all sets."""
    return dictionary(f"w{i}" for i in range(TOPICS * WORDS_PER_TOPIC))


class Task:
    """As much of a task as completing arguments and building a model needs."""

    cfg = None

    def __init__(self, max_positions: int = 40):
        self.source_dictionary = self.target_dictionary = word_dictionary()
        self.max_positions = lambda: max_positions


def dictionary(symbols: Iterable[str]) -> Dictionary:
    """A dictionary of these symbols in this order."""
    made = Dictionary()
    for symbol in symbols:
        made.add_symbol(symbol)
    return made


def sentence(rng: random.Random, topic: int, length: tuple[int, int] = (5, 25)) -> str:
    """Consecutive words of the topic, from a random one on."""
    start = rng.randrange(WORDS_PER_TOPIC)
    offsets = ((start + i) % WORDS_PER_TOPIC for i in range(rng.randint(*length)))
    return " ".join(f"w{topic * WORDS_PER_TOPIC + offset}" for offset in offsets)


def write_split(directory: Path, split: str, lines: list[str], symbols: Dictionary) -> None:
    """Write SPLIT.bin and SPLIT.idx, and dict.txt beside them."""
    directory.mkdir(parents=True, exist_ok=True)
    prefix = str(directory / split)
    builder = indexed_dataset.make_builder(f"{prefix}.bin", "mmap", vocab_size=len(symbols))
    for line in lines:
        ids = symbols.encode_line(line, add_if_not_exist=False, append_eos=True)
        builder.add_item(ids)
    builder.finalize(f"{prefix}.idx")
    symbols.save(str(directory / "dict.txt"))


def write_masked_lm(directory: Path, train: int = 200, valid: int = 60, seed: int = 0) -> Path:
    """A data directory for the task `masked_lm`.

    Args:
        directory: where to write.
        train: number of sentences to train on.
        valid: number of sentences to validate on. They must fill 8 samples, or else fairseq finds
            no batch with its default --required-batch-size-multiple: 60 do for 64 tokens a sample.
        seed: of the text.

    Returns:
        ``directory``.
    """
    rng = random.Random(seed)
    for split, size in (("train", train), ("valid", valid)):
        lines = [sentence(rng, rng.randrange(TOPICS)) for _ in range(size)]
        write_split(directory, split, lines, word_dictionary())
    return directory


def write_translation(
    directory: Path, train: int = 100, valid: int = 16, joined: bool = True, seed: int = 0
) -> Path:
    """A data directory for the task `translation`: what is read backwards, from `en` to `de`.

    Args:
        directory: where to write.
        train: number of pairs to train on.
        valid: number of pairs in each of the splits valid and test.
        joined: whether both languages have one dictionary; else that of `de` has a word more.
        seed: of the text.

    Returns:
        ``directory``.
    """
    rng = random.Random(seed)
    other = word_dictionary()
    if not joined:
        other.add_symbol("w200")
    for split, size in (("train", train), ("valid", valid), ("test", valid)):
        lines = [sentence(rng, rng.randrange(TOPICS), (2, 9)) for _ in range(size)]
        backwards = [" ".join(reversed(line.split())) for line in lines]
        write_split(directory, f"{split}.en-de.en", lines, word_dictionary())
        (directory / "dict.txt").rename(directory / "dict.en.txt")
        write_split(directory, f"{split}.en-de.de", backwards, other)
        (directory / "dict.txt").rename(directory / "dict.de.txt")
    return directory


def write_sentences(
    directory: Path,
    classes: int = 2,
    targets: int = 0,
    pairs: bool = False,
    splits: tuple[str, ...] = ("train", "valid"),
    size: int = 64,
    seed: int = 0,
) -> Path:
    """A data directory for the task `sentence_prediction`.

    Args:
        directory: where to write input0/, label/ and with ``pairs`` input1/.
        classes: labels are the strings 0, ..., classes - 1, each that of some topics.
        targets: for regression, numbers per example; 0 for classification.
        pairs: two sentences an example, both of the same label.
        splits: names of the splits.
        size: examples per split.
        seed: of the text.

    Returns:
        ``directory``.
    """
    rng = random.Random(seed)
    for split in splits:
        labels = [i % classes for i in range(size)]
        rng.shuffle(labels)
        for side in ("input0", "input1")[: 1 + pairs]:
            lines = [
                sentence(rng, label + classes * rng.randrange(TOPICS // classes))
                for label in labels
            ]
            write_split(directory / side, split, lines, word_dictionary())
        if targets:
            rows = [" ".join(str(label + 0.5 * k) for k in range(targets)) for label in labels]
            (directory / "label").mkdir(exist_ok=True)
            (directory / "label" / f"{split}.label").write_text("\n".join(rows) + "\n")
        else:
            names = dictionary(str(label) for label in range(classes))
            write_split(directory / "label", split, [str(label) for label in labels], names)
    return directory


def write_pieces(directory: Path, lines: list[str]) -> tuple[list[str], Dictionary]:
    """Lines split by a BPE vocabulary of 60 pieces, whose model is written, and its dictionary."""
    model = pieces.train(directory, lines, 60)
    split = [" ".join(model.encode(line, out_type=str)) for line in lines]
    return split, pieces.dictionary_of_pieces(model)


def write_sentencepiece(folder: Path) -> None:
    """A model of some words of the README and of toy text."""
    pieces.train(folder, ["w1 w2 w3 a delight movie good ."] * 20, 30, model_type="unigram")
