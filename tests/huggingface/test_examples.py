"""The examples run on a tiny model."""

import runpy
import sys

import pytest

from tests.huggingface.samples import LENGTH, masked_lm
from tests.interop.pieces import dictionary_of_pieces, train

pytest.importorskip("transformers", reason="transformers is not installed (extra hf)")

from tupe_fairseq.interop.tokenizer_json import write_tokenizer


@pytest.fixture
def directory(tmp_path):
    """A masked language model with its tokenizer."""
    import tupe_fairseq.huggingface  # noqa: F401 (the directory has no code of its own here)

    dictionary = dictionary_of_pieces(train(tmp_path))
    assert write_tokenizer(tmp_path, tmp_path, dictionary, LENGTH) == ""
    masked_lm(vocab_size=len(dictionary) + 1).save_pretrained(tmp_path)
    return tmp_path


def test_fill_mask(directory, monkeypatch, capsys):
    capsys.readouterr()
    run("fill_mask", monkeypatch, directory, "a <mask> movie .")
    lines = [line for line in capsys.readouterr().out.splitlines() if line.endswith(" movie .")]
    assert len(lines) == 5
    probabilities = [float(line.split()[0]) for line in lines]
    assert probabilities == sorted(probabilities, reverse=True)


def test_text_without_a_mask(directory, monkeypatch):
    with pytest.raises(SystemExit) as ended:
        run("fill_mask", monkeypatch, directory, "a good movie .")
    assert ended.value.code == "error: TEXT is 'a good movie .', but has no <mask>."


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("fill_mask", (), "the following arguments are required: DIRECTORY, TEXT"),
        ("fill_mask", ("nowhere", "a <mask>"), "DIRECTORY is 'nowhere', but has no config.json"),
        ("serve", (), "the following arguments are required: PROGRAM"),
        ("serve", ("nowhere",), "PROGRAM is 'nowhere', but has no config.json"),
    ],
)
def test_mistakes(name, words, message, tmp_path, monkeypatch, capsys):
    if name != "fill_mask":
        pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (extra onnx)")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        run(name, monkeypatch, *words)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def run(name: str, monkeypatch: pytest.MonkeyPatch, *words: object) -> None:
    """The example as a program."""
    monkeypatch.setattr(sys, "argv", [name, *map(str, words)])
    runpy.run_module(f"examples.huggingface.{name}", run_name="__main__")
