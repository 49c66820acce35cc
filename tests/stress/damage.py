"""Damage files at random places, and use texts of random characters.

A file or text must be read, or refused by an error of one line.
"""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq.data import data_utils

from examples.glue.readers import read_split
from examples.glue.tasks import TASKS
from tests import toy_data
from tests.convert import release
from tests.fairseq.glue import samples
from tupe_fairseq import TupeRobertaModel
from tupe_fairseq.convert.command import convert
from tupe_fairseq.convert.formats import huggingface
from tupe_fairseq.fairseq.checks import check_data

Try = Callable[[random.Random], Any]
#: Prepares a folder; returns the function that is called again and again.
Maker = Callable[[Path], Try]


def damaged(raw: bytes, rng: random.Random) -> bytes:
    """Bytes cut, changed, inserted or removed at a random place, or replaced by others."""
    at = rng.randrange(len(raw) + 1)
    some = rng.randbytes(rng.randint(1, 9))
    return rng.choice(
        [
            raw[:at],
            raw[:at] + some + raw[at + len(some) :],
            raw[:at] + some + raw[at:],
            raw[:at] + raw[rng.randrange(len(raw) + 1) :],
            some,
            b"",
        ]
    )


def damaging(folder: Path, name: str, use: Callable[[], Any]) -> Try:
    """A function that damages a file of a folder, and uses it.

    Without damage, it can be used: otherwise all would be refused for another reason.
    """
    path = folder / name
    raw = path.read_bytes()
    use()

    def once(rng: random.Random) -> None:
        path.write_bytes(damaged(raw, rng))
        use()

    return once


# ---------------------------------------------------------------- files


def converted(folder: Path) -> Path:
    """A directory for the hub, with a tokenizer."""
    samples.write_tokenizer(folder / "release", "\n".join(samples.OFFICIAL.values()))
    checkpoint = release.write(folder / "release", heads=("topic",))
    if not (folder / "model").exists():
        convert(["--from", "tupe-official", str(checkpoint), "--out", str(folder / "model")])
    return folder / "model"


def hub(name: str) -> Maker:
    """A file of a directory that the hub loads."""

    def make(folder: Path) -> Try:
        model = converted(folder)
        return damaging(model, name, lambda: TupeRobertaModel.from_pretrained(model))

    return make


def conversion(name: str) -> Maker:
    """A file of the authors' release. A refusal must leave no directory."""

    def make(folder: Path) -> Try:
        checkpoint = release.write(folder / "release")
        out = folder / "model"

        def use() -> None:
            shutil.rmtree(out, ignore_errors=True)
            try:
                convert(["--from", "tupe-official", str(checkpoint), "--out", str(out)])
            finally:
                assert not out.exists() or {f.name for f in out.iterdir()} == {
                    "model.pt",
                    "dict.txt",
                }
                assert {f.name for f in folder.iterdir()} <= {"release", "model"}

        return damaging(checkpoint.parent, name, use)

    return make


def transformers(name: str) -> Maker:
    """A file of a directory of transformers."""

    def make(folder: Path) -> Try:
        out = folder / "transformers"
        convert(["--to", "huggingface", str(converted(folder)), "--out", str(out)])
        return damaging(out, name, lambda: huggingface.read(out))

    return make


def binarised(name: str) -> Maker:
    """Data for pre-training. If they pass the checks, all sentences can be read."""

    def make(folder: Path) -> Try:
        toy_data.write_masked_lm(folder)

        def use() -> None:
            check_data(str(folder))
            sentences = data_utils.load_indexed_dataset(str(folder / "train"))
            for number in range(len(sentences)):
                sentences[number]

        return damaging(folder, name, use)

    return make


def glue(folder: Path) -> Try:
    """Any file of the GLUE download."""
    samples.write(folder, samples.OFFICIAL)
    raw = {name: (folder / name).read_bytes() for name in samples.OFFICIAL}
    splits = [(task, split) for task in TASKS.values() for split in task.splits]

    def once(rng: random.Random) -> None:
        task, split = rng.choice(splits)
        for name in filter(raw.get, split.files):
            (folder / name).write_bytes(damaged(raw[name], rng))
        read_split(folder, task, split)

    return once


# ---------------------------------------------------------------- inputs

#: Strings with a special meaning.
ODD = ["<mask>", "<s>", "</s>", "<pad>", "<unk>", "▁", "\x00", "\n", "\r", "\t", "\ud800", " ", ""]


def anything(rng: random.Random) -> str:
    """Random characters, halves of surrogate pairs included."""
    return "".join(
        rng.choice(ODD) if rng.random() < 0.3 else chr(rng.randrange(0x110000))
        for _ in range(rng.randrange(30))
    )


def text(verb: str) -> Maker:
    """Texts for one of the hub's methods."""

    def make(folder: Path) -> Try:
        roberta = TupeRobertaModel.from_pretrained(converted(folder))
        use = {
            "encode": roberta.encode,
            "fill_mask": lambda text: roberta.fill_mask(f"<mask>{text}", topk=2),
            "predict": lambda text: roberta.predict("topic", roberta.encode(text)),
        }[verb]
        return lambda rng: use(anything(rng))

    return make


def rows(folder: Path) -> Try:
    """Rows of random characters in a file of GLUE."""
    task = TASKS["SST-2"]

    def once(rng: random.Random) -> None:
        lines = ["sentence\tlabel", *(f"{anything(rng)}\t{rng.choice('01x')}" for _ in "abc")]
        content = "\n".join(lines).encode(errors="surrogatepass")
        (folder / "SST-2").mkdir(exist_ok=True)
        (folder / "SST-2" / "train.tsv").write_bytes(content)
        read_split(folder, task, task.splits[0])

    return once


TRIED: dict[str, Maker] = {
    "checkpoint, hub": hub("model.pt"),
    "dict.txt, hub": hub("dict.txt"),
    "sentencepiece model, hub": hub("sentencepiece.bpe.model"),
    "checkpoint, converter": conversion("checkpoint.pt"),
    "dict.txt, converter": conversion("dict.txt"),
    "config.json, transformers": transformers("config.json"),
    "model.safetensors, transformers": transformers("model.safetensors"),
    "train.idx, training": binarised("train.idx"),
    "train.bin, training": binarised("train.bin"),
    "GLUE download": glue,
    **{f"text to {verb}": text(verb) for verb in ("encode", "fill_mask", "predict")},
    "rows of GLUE": rows,
}
