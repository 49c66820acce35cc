"""examples/pretraining/encode.py and prepare.sh: from lines to data that fairseq reads."""

import os
from pathlib import Path

import pytest
import torch
from fairseq.data import Dictionary, data_utils
from fairseq.data.encoders.gpt2_bpe import GPT2BPE, GPT2BPEConfig
from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE, SentencepieceConfig

from examples.pretraining import encode
from tests import ROOT
from tests.convert import pieces
from tests.examples.conftest import sentences
from tupe_fairseq import UsageError


def run(text: Path, out: Path, *flags: object) -> None:
    encode.main([str(text), "--out", str(out), "--workers", "1", *map(str, flags)])


def check(text: Path, out: Path, bpe) -> None:
    """The symbols are those of fairseq's own BPE, and the dictionary has all it can."""
    known = Dictionary.load(str(out / "dict.txt"))
    for split in ("train", "valid"):
        lines = (text / f"{split}.txt").read_text().splitlines()
        symbols = (out / split).read_text().splitlines()
        assert symbols == [bpe.encode(line) for line in lines]
        assert [bpe.decode(line) for line in symbols] == lines
        unknown = {s for line in symbols for s in line.split() if known.index(s) == known.unk()}
        assert unknown <= {"ä"}


def test_sentencepiece(text, tmp_path, monkeypatch):
    monkeypatch.setattr(encode, "PART", 70)
    out = tmp_path / "out"
    run(text, out, "--sentencepiece", 40)
    model = out / "sentencepiece.bpe.model"
    check(text, out, SentencepieceBPE(SentencepieceConfig(sentencepiece_model=str(model))))
    # 40 with <unk>, <s> and </s>, which fairseq has itself.
    assert len((out / "dict.txt").read_text().splitlines()) == 37
    again = tmp_path / "again"
    run(text, again, "--sentencepiece", model)
    assert (again / "train").read_bytes() == (out / "train").read_bytes()


def test_a_vocabulary_without_a_counterpart_in_transformers(text, tmp_path, capsys):
    """Is said before anything is trained with it."""
    for kind in ("unigram", "word"):
        folder = tmp_path / kind
        folder.mkdir()
        lines = (text / "train.txt").read_text().splitlines()
        pieces.train(folder, lines, 60, model_type=kind)
        capsys.readouterr()
        run(text, tmp_path / f"{kind}-out", "--sentencepiece", folder / "sentencepiece.bpe.model")
        told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
        assert len(told) == (kind == "word")
    assert "has the type word" in told[0]
    assert "no tokenizer.json" in told[0]


def test_gpt2_bpe(text, gpt2, tmp_path):
    out = tmp_path / "out"
    run(text, out, "--gpt2-bpe", gpt2)
    names = {"gpt2_encoder_json": gpt2 / "encoder.json", "gpt2_vocab_bpe": gpt2 / "vocab.bpe"}
    check(text, out, GPT2BPE(GPT2BPEConfig(**{key: str(path) for key, path in names.items()})))
    assert len((out / "dict.txt").read_text().splitlines()) == 258


@pytest.mark.real_data
def test_gpt2_bpe_as_released(text, tmp_path):
    folder = ROOT.parent / "shared/data/tokenizers"
    if not folder.is_dir():
        pytest.skip("../shared/data/tokenizers is not there")
    (text / "train.txt").write_text("Hello world\n")
    run(text, tmp_path / "out", "--gpt2-bpe", folder)
    assert (tmp_path / "out/train").read_text() == "15496 995\n"


def test_second_call_makes_what_is_missing(text, tmp_path):
    out = tmp_path / "out"
    run(text, out, "--sentencepiece", 40)
    valid = (out / "valid").read_bytes()
    (out / "valid").unlink()
    (out / "train").write_text("kept")
    run(text, out, "--sentencepiece", 40)
    assert (out / "valid").read_bytes() == valid
    assert (out / "train").read_text() == "kept"
    with pytest.raises(UsageError, match="of another vocabulary"):
        run(text, out, "--sentencepiece", 41)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--sentencepiece", 5000), "--sentencepiece is 5000, but .*[Vv]ocabulary size"),
        (("--sentencepiece", "nothing"), "neither a size nor a file"),
        (("--sentencepiece", __file__), "is not a sentencepiece model"),
        (("--gpt2-bpe", "nowhere"), "lacks encoder.json or vocab.bpe"),
        (("--sentencepiece", 40, "--workers", 0), "--workers must be at least 1"),
    ],
)
def test_mistakes(text, tmp_path, flags, message):
    with pytest.raises(UsageError, match=message):
        run(text, tmp_path / "out", *flags)
    assert not (tmp_path / "out/train").exists()


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_lines_of_other_editors(mark, text, gpt2, tmp_path, monkeypatch):
    """In several parts: no mark, no CR, and the number of a line that is not UTF-8."""
    monkeypatch.setattr(encode, "PART", 70)
    run(text, tmp_path / "one", "--gpt2-bpe", gpt2)
    plain = (text / "train.txt").read_bytes()
    (text / "train.txt").write_bytes(mark + plain.replace(b"\n", b"\r\n"))
    run(text, tmp_path / "two", "--gpt2-bpe", gpt2)
    assert (tmp_path / "two/train").read_bytes() == (tmp_path / "one/train").read_bytes()
    (text / "train.txt").write_bytes(plain + b"caf\xe9\n")
    with pytest.raises(UsageError, match=r"train\.txt: line 301 is not UTF-8, byte 0xe9 at 3"):
        run(text, tmp_path / "three", "--gpt2-bpe", gpt2)


def test_text_is_asked_for(tmp_path):
    with pytest.raises(UsageError, match=r"holds no train\.txt"):
        run(tmp_path, tmp_path / "out", "--sentencepiece", 40)


# ---------------------------------------------------------------- all steps


PREPARE = ROOT / "examples/pretraining/prepare.sh"


@pytest.mark.slow
def test_prepare_goes_on_where_it_failed(bash, tmp_path):
    source = tmp_path / "my texts"
    out = tmp_path / "my data"
    source.mkdir()
    (source / "a").write_text("\n\n".join(sentences(300)))
    arguments = ("--out", out, "--valid-share", 0.1, "--workers", 1, source)
    failed = bash(PREPARE, "--sentencepiece", 5000, *arguments)
    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1].startswith("error: python exited with status 1")
    assert "--sentencepiece is 5000" in failed.stderr
    assert not (out / "bin").exists()
    done = bash(PREPARE, "--sentencepiece", 40, *arguments)
    assert done.returncode == 0, done.stderr
    assert "Clean the text: done already" in done.stdout
    dictionary = Dictionary.load(str(out / "bin/dict.txt"))
    model = str(out / "bin/sentencepiece.bpe.model")
    bpe = SentencepieceBPE(SentencepieceConfig(sentencepiece_model=model))
    for split in ("train", "valid"):
        data = data_utils.load_indexed_dataset(str(out / "bin" / split), dictionary)
        lines = (out / "text" / f"{split}.txt").read_text().splitlines()
        assert len(data) == len(lines)
        expected = dictionary.encode_line(bpe.encode(lines[0]), add_if_not_exist=False).long()
        assert torch.equal(data[0].long(), expected)
    # Another text of the same size, written on a day long ago.
    (source / "a").write_text("\n\n".join(sentences(300)[::-1]))
    os.utime(source / "a", (1e9, 1e9))
    again = bash(PREPARE, "--sentencepiece", 40, *arguments)
    assert again.returncode == 0, again.stderr
    assert "done already" not in again.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--out", "OUT", "--sentencepiece", 40), "INPUT is missing"),
        (("--sentencepiece", 40, "IN"), "--out is missing"),
        (("--out", "OUT", "IN"), "--sentencepiece or --gpt2-bpe is missing"),
        (("--out", "OUT", "--sentencepiece", 40, "nowhere"), "INPUT nowhere does not exist"),
        (("--out", "OUT", "--vocabulary", 40, "IN"), "unknown argument --vocabulary"),
        (("IN", "--out"), "--out lacks its value"),
        (("--out", "OUT", "--workers", "no", "--sentencepiece", 40, "IN"), "--workers must be"),
    ],
)
def test_mistakes_in_prepare(arguments, message, bash, tmp_path):
    (tmp_path / "in").mkdir()
    paths = {"OUT": tmp_path / "out", "IN": tmp_path / "in"}
    failed = bash(PREPARE, *(paths.get(word, word) for word in arguments))
    assert failed.returncode == 1
    assert failed.stderr.startswith("error: ")
    assert message in failed.stderr
    assert not (tmp_path / "out").exists()
