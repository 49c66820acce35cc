"""Full disks, files cut off, files of elsewhere: the old state stays, and one line says why."""

import os
import shutil
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import ROOT, processes
from tests.disks import full_disk
from tests.fairseq_commands import finetune, pretrain
from tests.interop import release
from tests.training.test_bad_input import fairseq_train
from tupe_fairseq import TupeRobertaModel, UsageError
from tupe_fairseq.interop.convert import convert
from tupe_fairseq.interop.dictionaries import (
    Entry,
    dictionary_text,
    read_dictionary,
)


def files(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def test_a_cut_off_checkpoint_names_the_one_to_go_on_from(
    toy_masked_lm_data, tmp_path, monkeypatch
):
    """fairseq copies checkpoint_last.pt in place: a kill may leave a part of it."""
    monkeypatch.setattr(sys, "argv", ["fairseq-train"])
    flags = ("--save-interval-updates", 1, "--max-update")
    last = pretrain(toy_masked_lm_data, tmp_path, *flags, 3)
    cut_off = last.read_bytes()[:-1000]
    last.write_bytes(cut_off)
    (tmp_path / "checkpoint_best.pt").write_bytes(cut_off)
    others = sorted(tmp_path.glob("checkpoint_?_?.pt"), key=lambda path: path.stem[-1])
    assert len(others) == 3
    for seconds, path in enumerate(others):
        os.utime(path, (seconds, seconds))
    with pytest.raises(SystemExit) as ended:
        pretrain(toy_masked_lm_data, tmp_path, *flags, 6)
    told = str(ended.value)
    assert told.startswith(
        f"error: {last} cannot be loaded: it is not a checkpoint, or is damaged."
    )
    assert f"is {others[2].name}: copy it to checkpoint_last.pt" in told
    assert "\n" not in told
    shutil.copy(others[2], last)
    again = torch.load(pretrain(toy_masked_lm_data, tmp_path, *flags, 6), weights_only=True)
    assert again["optimizer_history"][-1]["num_updates"] == 6


OVERWRITTEN = """
import sys
from tupe_fairseq.interop.directory import read_source
state = read_source(sys.argv[1], None)[0]
open(sys.argv[1], "wb").close()
print(sum(value.sum().item() for value in state["model"].values()))
"""


def test_a_checkpoint_may_be_overwritten_while_it_is_converted(tmp_path):
    """As training does with checkpoint_last.pt; reading a mapped file then is a bus error."""
    checkpoint = release.write(tmp_path / "release")
    (tmp_path / "program.py").write_text(OVERWRITTEN)
    ended = processes.run(tmp_path / "program.py", checkpoint)
    assert ended.returncode == 0, ended.stderr
    total = sum(value.sum().item() for value in release.state().values())
    assert float(ended.stdout) == pytest.approx(total, rel=1e-4)


@pytest.mark.parametrize("after", [100, 5_000, 30_000])
def test_converting_on_a_full_disk(tmp_path, after):
    checkpoint = release.write(tmp_path / "release")
    with full_disk(after), pytest.raises(UsageError, match="cannot write"):
        convert(["--from", "tupe-official", str(checkpoint), "--out", str(tmp_path / "ours")])
    assert list(files_and_folders(tmp_path)) == ["release"]


def files_and_folders(folder):
    return sorted(path.name for path in folder.iterdir())


def test_output_that_is_there_stays(tmp_path):
    checkpoint = release.write(tmp_path / "release")
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "mine.txt").write_text("mine")
    arguments = ["--from", "tupe-official", str(checkpoint), "--out"]
    with pytest.raises(UsageError, match="exists already; name a new directory"):
        convert([*arguments, str(tmp_path / "ours")])
    assert files(tmp_path / "ours") == {"mine.txt": b"mine"}
    with pytest.raises(UsageError, match="cannot write"):
        convert([*arguments, str(checkpoint / "inside-a-file")])
    for folder in ("/proc/nowhere", "/sys/nowhere"):
        if Path(folder).parent.is_dir():
            with pytest.raises(UsageError, match="cannot write"):
                convert([*arguments, folder])


def test_the_command_ends_in_one_line(tmp_path):
    script = ROOT / "scripts" / "convert_checkpoint.py"
    (tmp_path / "model.pt").write_bytes(b"not a checkpoint")
    for words, part in (
        (
            ["tupe-official", tmp_path / "model.pt", "--out", tmp_path / "a"],
            "model.pt cannot be loaded",
        ),
        (["tupe-official", tmp_path / "none.pt", "--out", tmp_path / "a"], "none.pt"),
    ):
        ended = processes.run(script, "--from", *words)
        assert ended.returncode == 1
        assert "Traceback" not in ended.stderr
        assert ended.stderr.strip().splitlines()[-1].startswith("error: ")
        assert part in ended.stderr.strip().splitlines()[-1]
        assert not (tmp_path / "a").exists()


@pytest.mark.slow
def test_the_stress_script_kills_and_compares(tmp_path):
    """One command of it, killed once; a second call adds its table."""
    for more in (["--only", "conversion", "--kills", "1"], ["--only", "inputs", "--tries", "2"]):
        processes.run("tests.stress", "--out", tmp_path, *more).check_returncode()
    told = (tmp_path / "stress.md").read_text()
    assert "| conversion | 1 | 1 | nothing |" in told
    assert "| rows of GLUE | 2 |" in told


# ---------------------------------------------------------------- data


@pytest.mark.parametrize(
    ("name", "damage", "part"),
    [
        ("train.bin", lambda raw: raw[:-10], "train.bin has"),
        ("train.bin", lambda raw: raw + b"more", "train.bin has"),
        ("train.idx", lambda raw: raw[:-3], "train.idx is cut off"),
        ("train.idx", lambda raw: raw[:15], "train.idx is cut off"),
        ("valid.idx", lambda raw: raw[:17] + b"\x63" + raw[18:], "valid.idx is cut off"),
    ],
)
def test_damaged_data_is_named(toy_masked_lm_data, tmp_path, monkeypatch, name, damage, part):
    """In process, as the command would: its name makes the checks of commands run."""
    data = tmp_path / "data"
    shutil.copytree(toy_masked_lm_data, data)
    (data / name).write_bytes(damage((data / name).read_bytes()))
    monkeypatch.setattr(sys, "argv", ["fairseq-train"])
    with pytest.raises(SystemExit) as ended:
        pretrain(data, tmp_path / "model")
    assert str(ended.value).startswith("error: ")
    assert part in str(ended.value)
    assert str(data) in str(ended.value)
    assert "\n" not in str(ended.value)


def test_damaged_labels_are_named(toy_sentence_data, tmp_path, monkeypatch):
    shutil.copytree(toy_sentence_data["pairs"], tmp_path / "data")
    file = tmp_path / "data" / "label" / "train.bin"
    file.write_bytes(file.read_bytes()[:-1])
    monkeypatch.setattr(sys, "argv", ["fairseq-train"])
    with pytest.raises(SystemExit, match=r"label/train.bin has \d+ bytes"):
        finetune(tmp_path / "data", tmp_path / "model", "--num-classes", 2)


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: b"\xff\xfe\x00" * 9,
        lambda raw: b"<html>\n",
        lambda raw: raw[:-3] + b"\n",
        lambda raw: b"a 1\na 1\n",
    ],
)
def test_damaged_dictionaries_are_named(tmp_path, damage):
    """By the hub; the converters' reader is tested below."""
    checkpoint = release.write(tmp_path / "release")
    directory = tmp_path / "ours"
    convert(["--from", "tupe-official", str(checkpoint), "--out", str(directory)])
    TupeRobertaModel.from_pretrained(directory)
    path = directory / "dict.txt"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UsageError) as error:
        TupeRobertaModel.from_pretrained(directory)
    assert f"{path} cannot be loaded as a dictionary: " in str(error.value)
    assert "\n" not in str(error.value)


def test_the_real_command_names_damaged_data(toy_masked_lm_data, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(toy_masked_lm_data, data)
    (data / "train.idx").write_bytes((data / "train.idx").read_bytes()[:-3])
    flags = ("--task", "masked_lm", "--criterion", "masked_lm", "--tokens-per-sample", 64)
    ended = fairseq_train(data, *flags, "--save-dir", tmp_path / "model")
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert "train.idx is cut off" in ended.stderr.strip().splitlines()[-1]


# ---------------------------------------------------------------- anything at all


def refusal(call) -> str | None:
    """The message of the UsageError that a call ends in, or None."""
    try:
        call()
    except UsageError as error:
        return str(error)
    return None


words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r"), max_size=8)


@settings(deadline=None)
@given(st.lists(st.tuples(words, st.integers(-9, 10**9)), min_size=1, max_size=20))
def test_dictionaries_keep_every_word_in_its_place(tmp_path_factory, pairs):
    """Whatever words: what is written is read back, by us and by fairseq."""
    from fairseq.data import Dictionary

    path = tmp_path_factory.mktemp("d") / "dict.txt"
    path.write_text(dictionary_text([Entry(*pair) for pair in pairs]), encoding="utf-8")
    found = read_dictionary(path)
    assert [tuple(entry) for entry in found] == pairs
    assert Dictionary.load(str(path)).symbols[4:] == [word for word, _ in pairs]


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_dictionary_or_one_line(tmp_path_factory, raw):
    path = tmp_path_factory.mktemp("d") / "dict.txt"
    path.write_bytes(raw)
    told = refusal(lambda: read_dictionary(path))
    assert told is None or (str(path) in told and "\n" not in told)


def test_a_name_with_a_line_break_is_told_in_one_line(tmp_path):
    checkpoint = release.write(tmp_path / "release")
    raw = checkpoint.read_bytes()
    name = b"decoder.sentence_encoder.pos_q_linear.weight"
    assert name in raw
    checkpoint.write_bytes(raw.replace(name, name.replace(b"dec", b"de\n")))
    command = ["--from", "tupe-official", str(checkpoint), "--out", str(tmp_path / "ours")]
    told = refusal(lambda: convert(command))
    assert "\n" not in told
    assert r"de\noder" in told


@settings(deadline=None, max_examples=20)
@given(data=st.data())
def test_any_change_of_a_checkpoint_converts_or_is_one_line(tmp_path_factory, data):
    """Bytes changed, inserted or cut anywhere: no traceback, and no half of a directory."""
    folder = tmp_path_factory.mktemp("c")
    checkpoint = release.write(folder / "release")
    raw = bytearray(checkpoint.read_bytes())
    at = data.draw(st.integers(0, len(raw) - 1))
    kind = data.draw(st.sampled_from(["change", "insert", "cut"]))
    some = data.draw(st.binary(min_size=1, max_size=9))
    raw[at : at + (len(some) if kind == "change" else 0)] = some if kind != "cut" else b""
    checkpoint.write_bytes(raw[:at] if kind == "cut" else raw)
    command = ["--from", "tupe-official", str(checkpoint), "--out", str(folder / "ours")]
    told = refusal(lambda: convert(command))
    if told is None:
        assert files_and_folders(folder / "ours") == ["dict.txt", "model.pt"]
    else:
        assert "\n" not in told
        assert files_and_folders(folder) == ["release"]
    shutil.rmtree(folder)
