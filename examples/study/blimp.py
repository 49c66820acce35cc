"""BLiMP (Warstadt et al. 2020): how often a masked model prefers the grammatical sentence.

    python -m examples.study.blimp FOLDER --data blimp.jsonl.xz

FOLDER holds a model of the hub. --data is the file of all pairs, one JSON object in each line, or
the folder `data` of github.com/alexwarstadt/blimp. The score of a sentence is its
pseudo-log-likelihood (Salazar et al. 2020, equation 1): each piece is masked alone, and the
log-probabilities of the pieces are added. Equal scores count as wrong; those of the same words in
another order are equal for a model without positions. Sentences are lowercased if the
preprocessing.json of the model says so. Pairs that are longer than the model's --max-positions are
left out. Prints the accuracy of the 12 phenomena and its mean over the 67
paradigms, and writes FOLDER/blimp.json.
"""

import argparse
import json
import lzma
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import torch
from torch import Tensor

from examples.shared import script
from tupe_fairseq import TupeRobertaModel, UsageError
from tupe_fairseq.base.files import replacing
from tupe_fairseq.base.texts import decoded
from tupe_fairseq.fairseq.commands import add_user_dir
from tupe_fairseq.fairseq.hub.files import PREPROCESSING, lowercases

#: The paper counts the two paradigms of this term to argument structure.
PHENOMENA = {"s-selection": "argument_structure"}
#: Tokens of a forward pass.
TOKENS = 16384
#: Scores are equal within this difference, which is larger than the rounding of float32.
EQUAL = 1e-4


class Pair(NamedTuple):
    """A minimal pair of sentences."""

    paradigm: str
    phenomenon: str
    good: str
    bad: str


def read_pairs(path: Path, most: int) -> list[Pair]:
    """The first `most` pairs of each paradigm.

    Raises:
        UsageError: a file cannot be read, a line is not a pair, or there are none.
    """
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    found: dict[str, list[Pair]] = {}
    for file in files:
        opened = lzma.open if file.suffix == ".xz" else open
        try:
            with opened(file, "rb") as text:
                lines = list(decoded(text, f"--data: cannot read {str(file)!r}"))
        except (OSError, EOFError, lzma.LZMAError) as error:
            raise UsageError(f"--data: cannot read {str(file)!r}: {error}.") from error
        for number, line in enumerate(lines, 1):
            try:
                pair = read_pair(line)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise UsageError(f"{file}, line {number}: not a pair ({error}).") from error
            found.setdefault(pair.paradigm, []).append(pair)
    if not found:
        raise UsageError(f"--data is {str(path)!r}, but holds no pairs.")
    return [pair for pairs in found.values() for pair in pairs[:most]]


def read_pair(line: str) -> Pair:
    """The pair of a JSON object; a ValueError or another error tells what it is not."""
    row = json.loads(line)
    term = row["linguistics_term"]
    good = row["sentence_good"]
    bad = row["sentence_bad"]
    if not (good.strip() and bad.strip()):
        raise ValueError("a sentence is empty")
    return Pair(row["UID"], PHENOMENA.get(term, term), good, bad)


def encoded(hub: Any, pairs: list[Pair]) -> tuple[list[Pair], list[Tensor], int]:
    """The pairs that the model can read, their sentences as ids, and the number of other pairs.

    Raises:
        UsageError: the model can read none.
    """
    most = hub.model.max_positions()
    found = [(pair, (hub.encode(pair.good), hub.encode(pair.bad))) for pair in pairs]
    fitting = [(pair, both) for pair, both in found if max(map(len, both)) <= most]
    if not fitting:
        raise UsageError(f"all pairs are longer than --max-positions, which is {most}.")
    sentences = [each for _, both in fitting for each in both]
    return [pair for pair, _ in fitting], sentences, len(pairs) - len(fitting)


@torch.inference_mode()
def scores(hub: Any, sentences: list[Tensor]) -> list[float]:
    """Pseudo-log-likelihoods of sentences, each <s> ... </s>."""
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    found = [0.0] * len(sentences)
    for batch in batches(order, sentences):
        tokens = torch.stack([sentences[i] for i in batch])
        count, length = tokens.shape
        inner = tokens.size(1) - 2
        # One row for each piece of each sentence: count×inner×length.
        masked = torch.eye(length, dtype=torch.bool)[1:-1].expand(count, -1, -1)
        rows = tokens[:, None].expand_as(masked).masked_fill(masked, hub.task.mask_idx)
        logits, _ = hub.model(
            rows.flatten(0, 1).to(hub.device), masked_tokens=masked.flatten(0, 1).to(hub.device)
        )
        own = tokens[:, 1:-1].flatten().to(hub.device)
        likely = logits.float().log_softmax(-1).gather(1, own[:, None])
        for i, value in zip(batch, likely.view(count, inner).double().sum(1), strict=True):
            found[i] = value.item()
    return found


def batches(order: list[int], sentences: list[Tensor]) -> Iterator[list[int]]:
    """Sentences of equal length, of up to TOKENS tokens after masking; reports the progress."""
    last = began = time.monotonic()
    start = 0
    while start < len(order):
        length = len(sentences[order[start]])
        size = max(1, TOKENS // (length * (length - 2)))
        batch = [i for i in order[start : start + size] if len(sentences[i]) == length]
        yield batch
        start += len(batch)
        if (now := time.monotonic()) - last > 10:
            last = now
            print(f"{start / len(order):.0%} after {now - began:.0f} s", flush=True)


def accuracies(pairs: list[Pair], right: list[bool]) -> dict[str, Any]:
    """Accuracy in percent by paradigm, and means over paradigms: by phenomenon and of all."""
    paradigms: dict[str, list[bool]] = {}
    for pair, own in zip(pairs, right, strict=True):
        paradigms.setdefault(pair.paradigm, []).append(own)
    shares = {name: 100 * mean(own) for name, own in paradigms.items()}
    phenomena: dict[str, dict[str, float]] = {}
    for pair in pairs:
        phenomena.setdefault(pair.phenomenon, {})[pair.paradigm] = shares[pair.paradigm]
    return {
        "mean": mean(shares.values()),
        "phenomena": {name: mean(phenomena[name].values()) for name in sorted(phenomena)},
        "paradigms": dict(sorted(shares.items())),
    }


def main(argv: list[str] | None = None) -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add("folder", type=Path, help="directory of a model and its tokenizer")
    add("--data", type=Path, required=True, help="blimp.jsonl, perhaps .xz, or a folder of .jsonl")
    add("--checkpoint-file", help="default: as from_pretrained finds it")
    add(
        "--dictionary",
        type=Path,
        help="folder of dict.txt and the tokenizer (default: the model's)",
    )
    add("--pairs", type=int, default=1000, help="pairs of each paradigm (default: all 1,000)")
    add_user_dir(parser)
    args = parser.parse_args(argv)
    if args.pairs < 1:
        raise UsageError(f"--pairs must be at least 1, but is {args.pairs}.")
    began = time.monotonic()
    pairs = read_pairs(args.data, args.pairs)
    hub = TupeRobertaModel.from_pretrained(args.folder, args.checkpoint_file, args.dictionary)
    if lowercases(args.folder, args.dictionary or args.folder) is None:
        print(f"{args.folder} has no {PREPROCESSING}: sentences are not lowercased")
    pairs, sentences, left_out = encoded(hub, pairs)
    if left_out:
        print(f"left out: {left_out:,} pairs longer than --max-positions")
    found = scores(hub, sentences)
    right = [good > bad + EQUAL for good, bad in zip(found[::2], found[1::2], strict=True)]
    result = {"pairs": len(pairs), "left_out": left_out, **accuracies(pairs, right)}
    result["seconds"] = round(time.monotonic() - began, 1)
    for name, share in [*result["phenomena"].items(), ("mean of the paradigms", result["mean"])]:
        print(f"{share:6.2f} %  {name.replace('_', ' ')}")
    with replacing(args.folder / "blimp.json") as aside:
        aside.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    script.run(main)
