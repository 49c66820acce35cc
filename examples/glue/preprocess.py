"""Binarise one task of GLUE for fairseq's task `sentence_prediction`.

    python -m examples.glue.preprocess GLUE_DIR TASK BPE_DIR OUT

OUT gets, in the format of fairseq-preprocess:

    input0/, input1/     dict.txt and the sentences of each split; no input1/ for single sentences
    label/               dict.txt with the labels in the order of the model's outputs, and the
                         labels of each split; for STS-B the text files train.label, valid.label
    task.json            settings of the data: task, positions, lower case, examples
    report.txt           counts beside the official ones, and what was dropped
    and the tokenizer, for the fine-tuned model

Examples longer than the model's positions are truncated here, the longer sentence first: fairseq's
`--shorten-method truncate` would remove the end, with </s> and possibly the second sentence.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path

import torch
from fairseq.data import Dictionary
from tqdm import tqdm

from examples.glue.readers import Example, Read, find_task, read_split
from examples.glue.tasks import Split, Task, find_file
from examples.glue.tokenizer import Tokenizer
from examples.shared import script
from examples.shared.binarised import binarised
from examples.shared.workers import pool
from tupe_fairseq import UsageError
from tupe_fairseq.base.machine import cores

#: A dictionary that lacks a larger share of the pieces belongs to another tokenizer.
MOST_UNKNOWN = 0.2
#: Examples that a process encodes at a time.
CHUNK = 256

_tokenizer: Tokenizer


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "glue", type=Path, metavar="GLUE_DIR", help="the GLUE download, or your own"
    )
    parser.add_argument("task", metavar="TASK", help="CoLA, SST-2, ..., or your own")
    parser.add_argument("bpe", type=Path, metavar="BPE_DIR", help="tokenizer and dict.txt")
    parser.add_argument("out", type=Path, metavar="OUT", help="directory to write")
    positions = "of the pre-trained model (default: 512)"
    parser.add_argument("--max-positions", type=int, default=512, help=positions)
    case = parser.add_mutually_exclusive_group()
    lower = "the pre-training text was in lower case (default: as recorded in BPE_DIR)"
    case.add_argument("--lowercase", action="store_true", default=None, help=lower)
    case.add_argument("--cased", dest="lowercase", action="store_false", help="it was cased")
    parser.add_argument("--workers", type=int, default=cores(), help="processes (default: cores)")
    return parser.parse_args()


def shares(lengths: tuple[int, ...], positions: int) -> tuple[int, ...]:
    """Tokens of each of one or two sentences that remain, besides special tokens.

    `<s> a </s>` or `<s> a </s> </s> b </s>` must fit into the positions of the model.
    """
    room = positions - 2 * len(lengths)
    if sum(lengths) <= room:
        return lengths
    if len(lengths) == 1:
        return (room,)
    # The shorter sentence keeps at most half of the positions; the longer gets the rest.
    first = max(min(lengths[0], room // 2), room - lengths[1])
    return first, room - first


def _start(tokenizer: Tokenizer) -> None:
    global _tokenizer
    _tokenizer = tokenizer


def _encode(examples: list[Example]) -> list[list[list[int]]]:
    return [[_tokenizer.encode(text).tolist() for text in each.sentences] for each in examples]


def encoded(
    examples: list[Example], tokenizer: Tokenizer, workers: int, title: str
) -> Iterator[list[list[int]]]:
    """Ids of the sentences of each example, in order."""
    chunks = [examples[first : first + CHUNK] for first in range(0, len(examples), CHUNK)]
    bar = {"total": len(examples), "desc": title, "unit": " examples", "disable": None}
    if workers <= 1 or len(chunks) <= 1:
        _start(tokenizer)
        yield from tqdm(chain.from_iterable(map(_encode, chunks)), **bar)
        return
    with pool(workers, _start, tokenizer) as results:
        yield from tqdm(chain.from_iterable(results(_encode, chunks)), **bar)


@contextmanager
def written(folder: Path, split: str, dictionary: Dictionary) -> Iterator[Callable]:
    """Write FOLDER/SPLIT.bin and .idx, and dict.txt.

    Yields:
        A function that adds an example by its ids, without </s>.
    """
    folder.mkdir(parents=True, exist_ok=True)
    dictionary.save(str(folder / "dict.txt"))
    with binarised(folder / split, len(dictionary)) as builder:
        yield lambda ids: builder.add_item(torch.tensor([*ids, dictionary.eos()]))


def label_dictionary(task: Task, train: list[Example]) -> Dictionary:
    """The labels in the order of the model's outputs, with their frequencies."""
    dictionary = Dictionary()
    for word in task.labels:
        dictionary.add_symbol(word, n=sum(example.label == word for example in train))
    return dictionary


def write_labels(folder: Path, split: str, examples: list[Example], words: Dictionary) -> None:
    """Write the labels of a split: ids of words, or numbers as text for regression."""
    if len(words) > words.nspecial:
        with written(folder, split, words) as add:
            for example in examples:
                add([words.index(example.label)])
    else:
        folder.mkdir(parents=True, exist_ok=True)
        lines = "".join(f"{float(example.label)!r}\n" for example in examples)
        (folder / f"{split}.label").write_text(lines)


def write_sentences(
    read: Read, split: Split, args: argparse.Namespace, tokenizer: Tokenizer
) -> int:
    """Write the sentences of a split.

    Returns:
        The number of truncated examples.

    Raises:
        UsageError: the dictionary belongs to another tokenizer.
    """
    dictionary = tokenizer.dictionary
    columns = range(len(read.examples[0].sentences))
    cut = unknown = pieces = 0
    with ExitStack() as stack:
        folders = [written(args.out / f"input{i}", split.name, dictionary) for i in columns]
        adds = [stack.enter_context(folder) for folder in folders]
        for ids in encoded(read.examples, tokenizer, args.workers, split.name):
            kept = shares(tuple(map(len, ids)), args.max_positions)
            cut += kept != tuple(map(len, ids))
            for add, sentence, length in zip(adds, ids, kept, strict=True):
                add(sentence[:length])
                unknown += sentence.count(dictionary.unk())
                pieces += len(sentence)
        if unknown > MOST_UNKNOWN * pieces:
            raise UsageError(
                f"{args.bpe}/dict.txt belongs to another tokenizer: it lacks "
                f"{100 * unknown / pieces:.0f} % of the pieces of {read.path}."
            )
    return cut


def count_line(split: Split, read: Read, cut: int, positions: int) -> str:
    """The line of a split in the report."""
    count = len(read.examples)
    parts = [f"{count:,} examples"]
    if split.count:
        official = "as official" if count == split.count else f"OFFICIALLY {split.count:,}"
        parts = [f"{count:,} examples, {official}"]
    parts += [f"{number:,} dropped ({why})" for why, number in read.left_out.items()]
    if cut:
        parts.append(f"{cut:,} truncated to {positions} tokens")
    return f"{split.name:7} {'; '.join(parts)}"


def preprocess(args: argparse.Namespace) -> None:
    """Write OUT.

    Raises:
        UsageError: the download, the tokenizer or an option cannot be used.
    """
    task = find_task(args.glue, args.task)
    if args.max_positions < 8:
        raise UsageError(f"--max-positions is {args.max_positions}, but must be at least 8.")
    for split in task.splits:
        if not split.submission and find_file(args.glue, split) is None:
            raise UsageError(f"GLUE_DIR is {args.glue}, but has no {split.files[0]}.")
    tokenizer = Tokenizer(args.bpe, args.lowercase)
    lines = [f"{task.name}, {tokenizer.case}"]
    words = None
    counts = {}
    for split in task.splits:
        read = read_split(args.glue, task, split)
        if read is None:
            lines.append(f"{split.name:7} missing: {' or '.join(split.files)}")
            continue
        words = words or label_dictionary(task, read.examples)
        cut = write_sentences(read, split, args, tokenizer)
        if not split.submission:
            write_labels(args.out / "label", split.name, read.examples, words)
        counts[split.name] = len(read.examples)
        lines.append(count_line(split, read, cut, args.max_positions))
    tokenizer.copy_to(args.out)
    settings = {"task": task.name, "max_positions": args.max_positions}
    settings |= {"lowercase": tokenizer.lowercase, "examples": counts}
    (args.out / "task.json").write_text(json.dumps(settings, indent=2) + "\n")
    (args.out / "report.txt").write_text("\n   ".join(lines) + "\n")


if __name__ == "__main__":
    script.run(lambda: preprocess(arguments()))
