"""Damaged files, random texts and endless lines are read, or refused by an error of one line."""

import random
import tracemalloc
from contextlib import contextmanager

import pytest
import torch

from examples.glue.readers import read_split
from examples.glue.tasks import TASKS
from tests.convert import release
from tests.fairseq.glue import samples
from tests.stress import SEED, TRIES, damage
from tupe_fairseq import TupeRobertaModel, UsageError
from tupe_fairseq.convert.command import convert
from tupe_fairseq.convert.formats import huggingface


@pytest.mark.parametrize("name", damage.TRIED)
def test_damage_is_read_or_refused_in_one_line(name, tmp_path):
    once = damage.TRIED[name](tmp_path)
    rng = random.Random(SEED)
    refusals = []
    for _ in range(TRIES):
        try:
            once(rng)
        except UsageError as error:
            refusals.append(str(error))
    assert all("\n" not in told and len(told) < 2000 for told in refusals)
    print(f"{name}: {TRIES - len(refusals)} read, {len(refusals)} refused")


def test_an_id_outside_of_the_dictionary(tmp_path):
    model = TupeRobertaModel.from_pretrained(damage.converted(tmp_path)).model
    with pytest.raises(
        UsageError, match="the data contain the token id 999, but the dictionary has 28"
    ):
        model(torch.tensor([[0, 999, 2]]))


@contextmanager
def little_memory():
    """Fail if a tenth of a gigabyte is allocated inside the block."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()


def endless(path):
    """Lengthen a file by a gigabyte without a newline; the file system stores a hole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab") as file:
        file.truncate(2**30)


@pytest.mark.parametrize("name", ["SST-2/train.tsv", "SST-2/test.tsv", "MRPC/dev_ids.tsv"])
def test_a_line_of_a_gigabyte_in_glue(name, tmp_path):
    samples.write(tmp_path, samples.OFFICIAL)
    if name.startswith("MRPC"):
        (tmp_path / "MRPC/train.tsv").rename(tmp_path / "MRPC/msr_paraphrase_train.txt")
    endless(tmp_path / name)
    task = TASKS[name.partition("/")[0]]
    split = task.splits[2 if "test" in name else 0]
    with little_memory(), pytest.raises(UsageError, match=f"{name} is not a file of GLUE: a line"):
        read_split(tmp_path, task, split)


def test_a_line_of_a_gigabyte_in_a_directory(tmp_path):
    checkpoint = release.write(tmp_path / "release")
    convert(["--from", "tupe-official", str(checkpoint), "--out", str(tmp_path / "ours")])
    path = tmp_path / "ours" / "dict.txt"
    endless(path)
    with little_memory(), pytest.raises(UsageError) as error:
        TupeRobertaModel.from_pretrained(tmp_path / "ours")
    assert f"{path} cannot be loaded as a dictionary: " in str(error.value)
    endless(tmp_path / "release" / "checkpoint.pt")
    with little_memory(), pytest.raises(UsageError, match=r"checkpoint.pt cannot be loaded"):
        convert(["--from", "tupe-official", str(checkpoint), "--out", str(tmp_path / "no")])


def test_unclosed_brackets(tmp_path):
    """JSON nested so deeply that Python's parser fails."""
    (tmp_path / "config.json").write_text("[" * 60_000)
    with pytest.raises(UsageError, match=r"config.json cannot be read"):
        huggingface.read(tmp_path)
