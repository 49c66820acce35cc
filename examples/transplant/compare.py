"""Compare an encoder of sentences with one that has other positions.

    python -m examples.transplant.compare SOURCE TRANSPLANT TEXT

Both are directories of sentence-transformers. Shows the cosine of pairs of sentences in each, some
of which differ in the order of words alone, and the time for a line of TEXT: of SOURCE as it is,
and after `optimize` with each precision.
"""

import argparse
import time
from itertools import islice
from pathlib import Path
from typing import Any

import torch.nn.functional as F

from examples.shared import script
from examples.shared.markdown import table
from tupe_fairseq import UsageError
from tupe_fairseq.base.texts import read_lines
from tupe_fairseq.huggingface import optimize
from tupe_fairseq.huggingface.precision import PRECISIONS

PAIRS = (
    ("the dog bites the man", "a dog has bitten a man"),
    ("the dog bites the man", "the man bites the dog"),
    ("the dog bites the man", "man the the bites dog"),
    ("a film for the whole family", "parents and children will like it"),
    ("a film for the whole family", "the engine needs new oil"),
)
#: Lines that are timed, and how often each way in turn; the fastest time counts.
LINES = 200
ROUNDS = 5


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.transplant.compare", description=__doc__.split("\n", 1)[0]
    )
    for name in ("source", "transplant", "text"):
        parser.add_argument(name, type=Path, metavar=name.upper())
    args = parser.parse_args(argv)
    for path in (args.source, args.transplant):
        if not (path / "modules.json").is_file():
            raise UsageError(f"{str(path)!r} is no directory of sentence-transformers.")
    if not args.text.is_file():
        raise UsageError(f"TEXT is {str(args.text)!r}, but there is no such file.")
    return args


def cosines(model: Any) -> list[float]:
    """The cosine of each pair."""
    first, second = (
        model.encode(list(texts), convert_to_tensor=True, show_progress_bar=False)
        for texts in zip(*PAIRS, strict=True)
    )
    return F.cosine_similarity(first, second).tolist()


def milliseconds(models: dict[str, Any], texts: list[str]) -> dict[str, float]:
    """The time for one of many texts, by name."""
    times: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(ROUNDS):
        for name, model in models.items():
            start = time.perf_counter()
            model.encode(texts, show_progress_bar=False)
            times[name].append(time.perf_counter() - start)
    return {name: 1e3 * min(own) / len(texts) for name, own in times.items()}


def main(argv: list[str] | None = None) -> None:
    """See the module's docstring."""
    args = parse(argv)
    from sentence_transformers import SentenceTransformer

    source = SentenceTransformer(str(args.source))
    transplant = SentenceTransformer(str(args.transplant), trust_remote_code=True)
    rows = [
        [*pair, *(f"{value:.2f}" for value in values)]
        for pair, *values in zip(PAIRS, cosines(source), cosines(transplant), strict=True)
    ]
    print(*table(["", "", "cosine", "other positions"], rows), sep="\n")
    texts = list(islice(read_lines(args.text, f"TEXT is {str(args.text)!r}"), LINES))
    ways = {"as it is": source}
    ways |= {f'optimize, "{each}"': optimize(source, each) for each in PRECISIONS}
    rows = [[name, f"{each:.2f}"] for name, each in milliseconds(ways, texts).items()]
    print("", *table(["SOURCE", "ms for a line"], rows), sep="\n")


if __name__ == "__main__":
    script.run(main)
