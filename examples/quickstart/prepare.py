"""Turn the rated snippets of Hutto and Gilbert (ICWSM 2014) into fairseq's text files.

    python -m examples.quickstart.prepare SDIST OUT

SDIST is vaderSentiment-3.3.2.tar.gz, the source distribution of `vaderSentiment` (MIT licence),
which contains the snippets in an archive. Nothing of it is installed or imported. OUT gets, one
snippet per line, in lower case:

    pretrain.train, pretrain.valid       text of all four sets: movie and product reviews,
                                         newspaper editorials, tweets
    SPLIT.input0, SPLIT.label            movie reviews and their sentiment, 1 positive, 0 negative
                                         (SPLIT: train, valid, test), except those rated 0

No snippet of the split `test` is in the pre-training text, in any spelling.
"""

import hashlib
import html
import io
import sys
import tarfile
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

ARCHIVE = "additional_resources/hutto_ICWSM_2014.tar.gz"
REVIEWS = "movieReviewSnippets"
SETS = (REVIEWS, "amazonReviewSnippets", "nytEditorialSnippets", "tweets")

#: Share of the snippets in each split; the test split is about a thousand movie reviews.
SPLITS = {"test": 0.10, "valid": 0.05, "train": 0.85}


class Snippet(NamedTuple):
    """A text and the mean of its human ratings, from -4 (most negative) to 4 (most positive)."""

    score: float
    text: str


def parse(line: str) -> Snippet:
    """Parse a line: id, mean score, text."""
    _, score, text = line.rstrip("\r\n").split("\t", maxsplit=2)
    return Snippet(float(score), clean(text))


def clean(text: str) -> str:
    """One line of text in lower case with single spaces, and with `&amp;` as `&`."""
    return " ".join(html.unescape(text).lower().split())


def read_sets(sdist: Path) -> dict[str, list[Snippet]]:
    """The snippets of every set in the source distribution, read without unpacking it."""
    snippets = {}
    with tarfile.open(sdist) as outer:
        member = f"{outer.next().name.split('/')[0]}/{ARCHIVE}"
        with tarfile.open(fileobj=outer.extractfile(member)) as inner:
            for name in SETS:
                file = inner.extractfile(f"hutto_ICWSM_2014/{name}_GroundTruth.txt")
                # splitlines() would also split at rarer separators.
                lines = io.TextIOWrapper(file, encoding="utf-8", newline="\n")
                snippets[name] = [parse(line) for line in lines if line.strip()]
    return snippets


def label_of(snippet: Snippet) -> str | None:
    """1 for positive, 0 for negative, as strings, which F1 needs; None for neither."""
    if snippet.score == 0:
        return None
    return "1" if snippet.score > 0 else "0"


def letters(text: str) -> str:
    """Letters and digits in lower case, which are equal for all spellings of a snippet."""
    return "".join(filter(str.isalnum, text.casefold())) or text


def shuffled(texts: Iterable[str]) -> list[str]:
    """The texts, each in one spelling, in a pseudo-random order that is always the same."""
    unique = {letters(text): text for text in texts}
    order = sorted(unique, key=lambda key: hashlib.sha256(key.encode()).digest())
    return [unique[key] for key in order]


def split_reviews(snippets: list[Snippet]) -> dict[str, list[tuple[str, str]]]:
    """(text, label) pairs of every split, each with the same share of positive snippets.

    A snippet with both labels keeps the last one, so that it is in one split only.
    """
    labels = {letters(snippet.text): label_of(snippet) for snippet in snippets}
    splits: dict[str, list[tuple[str, str]]] = {split: [] for split in SPLITS}
    texts = shuffled(snippet.text for snippet in snippets)
    for label in ("0", "1"):
        pairs = [(text, label) for text in texts if labels[letters(text)] == label]
        ends = [round(len(pairs) * share) for share in accumulate(SPLITS.values())]
        for split, start, end in zip(SPLITS, [0, *ends], ends, strict=False):
            splits[split] += pairs[start:end]
    return splits


def split_pretraining(texts: list[str], held_out: Iterable[str]) -> dict[str, list[str]]:
    """Text for pre-training, in the order of the documents, without any spelling of `held_out`."""
    unseen = {letters(text) for text in held_out}
    texts = [text for text in texts if letters(text) not in unseen]
    order = shuffled(texts)
    valid = {letters(text) for text in order[: round(len(order) * SPLITS["valid"])]}
    splits: dict[str, list[str]] = {"train": [], "valid": []}
    for text in texts:
        splits["valid" if letters(text) in valid else "train"].append(text)
    return splits


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write one line each."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def main(sdist: str, out: str) -> None:
    """See the module's docstring."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    sets = read_sets(Path(sdist))
    reviews = split_reviews(sets[REVIEWS])
    for split, pairs in reviews.items():
        write_lines(folder / f"{split}.input0", (text for text, _ in pairs))
        write_lines(folder / f"{split}.label", (label for _, label in pairs))
    texts = [snippet.text for snippets in sets.values() for snippet in snippets]
    held_out = [text for text, _ in reviews["test"]]
    for split, kept in split_pretraining(texts, held_out).items():
        write_lines(folder / f"pretrain.{split}", kept)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
