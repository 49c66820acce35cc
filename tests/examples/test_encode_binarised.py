"""examples/pretraining/encode.py --binarise: the files of fairseq-preprocess, to the byte."""

import shutil
from pathlib import Path

import pytest
from fairseq import options
from fairseq_cli import preprocess

from examples.pretraining import encode
from examples.shared import binarised
from tests.convert.pieces import train
from tests.examples.conftest import sentences
from tests.examples.test_encode import run
from tupe_fairseq import UsageError


@pytest.fixture(params=["sentencepiece", "gpt2-bpe"])
def vocabulary(request, text, gpt2, tmp_path):
    """Flags of a vocabulary, and text with what is hard to look up."""
    hard = ["a märchen öäü cat", "<s> <unk> <pad> </s>", "  a   cat ", "", "\u2581 a", "語 a 語"]
    lines = [*sentences(40), *hard, *sentences(3)]
    (text / "valid.txt").write_text("".join(f"{line}\n" for line in lines)[:-1])
    return ("--sentencepiece", 40) if request.param == "sentencepiece" else ("--gpt2-bpe", gpt2)


def preprocessed(symbols: Path, out: Path) -> Path:
    """What fairseq-preprocess makes of lines of symbols."""
    flags = ["--only-source", "--srcdict", symbols / "dict.txt", "--destdir", out]
    flags += ["--trainpref", symbols / "train", "--validpref", symbols / "valid"]
    preprocess.main(options.get_preprocessing_parser().parse_args([*map(str, flags)]))
    return out


def assert_same(out: Path, expected: Path) -> None:
    for name in ("dict.txt", "train.bin", "train.idx", "valid.bin", "valid.idx"):
        assert (out / name).read_bytes() == (expected / name).read_bytes(), name


def test_as_by_fairseq_preprocess(vocabulary, text, tmp_path, monkeypatch):
    run(text, tmp_path / "symbols", *vocabulary)
    expected = preprocessed(tmp_path / "symbols", tmp_path / "expected")
    for part in (100, 1 << 22):
        monkeypatch.setattr(encode, "PART", part)
        out = tmp_path / str(part)
        run(text, out, *vocabulary, "--binarise")
        assert_same(out, expected)
        assert not list(out.glob("parts-*")), "parts are removed"


def test_no_text_is_held_out(text, tmp_path):
    (text / "valid.txt").write_text("")
    run(text, tmp_path / "symbols", "--sentencepiece", 40)
    run(text, tmp_path / "out", "--sentencepiece", 40, "--binarise")
    assert_same(tmp_path / "out", preprocessed(tmp_path / "symbols", tmp_path / "expected"))


def test_interrupted_after_parts(text, tmp_path, monkeypatch):
    """Whole parts are kept; a part without its index is made again."""
    monkeypatch.setattr(encode, "PART", 500)
    calm = tmp_path / "calm"
    out = tmp_path / "out"
    run(text, calm, "--sentencepiece", 40, "--binarise")

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(binarised.shutil, "copyfileobj", stop)
        with pytest.raises(KeyboardInterrupt):
            run(text, out, "--sentencepiece", 40, "--binarise")
    assert not (out / "train.idx").exists()
    lost, kept, *others = (out / "parts-train.idx").glob("*.idx")
    assert len(others) > 3
    lost.unlink()
    # Exchanged, which shows that it is not made again.
    for suffix in (".bin", ".idx"):
        shutil.copy(others[0].with_suffix(suffix), kept.with_suffix(suffix))
    run(text, out, "--sentencepiece", 40, "--binarise")
    found, expected = ((each / "train.idx").read_bytes() for each in (out, calm))
    assert found != expected
    (out / "train.idx").unlink()
    run(text, out, "--sentencepiece", 40, "--binarise")
    assert_same(out, calm)


def test_vocabulary_that_fairseq_cannot_use(text, tmp_path):
    train(tmp_path, (text / "train.txt").read_text().splitlines(), user_defined_symbols="<pad>")
    model = tmp_path / "sentencepiece.bpe.model"
    with pytest.raises(UsageError, match=r"fairseq cannot use this vocabulary: Duplicate .*<pad>"):
        run(text, tmp_path / "out", "--sentencepiece", model)
    assert not (tmp_path / "out/dict.txt").exists()
