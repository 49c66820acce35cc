"""examples/study/blimp.py: scores against one mask at a time, and the accuracies."""

import json
import lzma
import shutil
from itertools import permutations

import pytest
import torch

from examples.study import blimp
from tests import toy_data
from tests.fairseq_commands import pretrain
from tupe_fairseq import TupeRobertaModel, UsageError
from tupe_fairseq.fairseq.hub.files import record_preprocessing

LINES = ["the cat sat on the mat", "a dog ran over the hill", "cats and dogs run"]
PAIRS = [
    ("one", "binding", "The cat sat on the mat", "the cat sat on mat the"),
    ("one", "binding", "a dog ran", "ran dog a the hill"),
    ("one", "binding", "cats run", "cats cats run"),
    ("two", "s-selection", "the mat sat", "mat mat mat"),
    # Equal sentences have equal scores.
    ("three", "argument_structure", "dogs run", "dogs run"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A trained model with its tokenizer, in lower case."""
    root = tmp_path_factory.mktemp("blimp")
    lines, symbols = toy_data.write_pieces(root, LINES * 20)
    for split in ("train", "valid"):
        toy_data.write_split(root, split, lines, symbols)
    shutil.copy(pretrain(root, root / "save"), root / "model.pt")
    record_preprocessing(root, lowercase=True)
    return root


def write_pairs(path, pairs):
    keys = ("UID", "linguistics_term", "sentence_good", "sentence_bad")
    with lzma.open(path, "wt") as out:
        out.writelines(json.dumps(dict(zip(keys, pair, strict=True))) + "\n" for pair in pairs)
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_pairs(tmp_path_factory.mktemp("data") / "blimp.jsonl.xz", PAIRS)


def one_by_one(hub, text):
    """The sum over pieces, each masked in a pass of its own."""
    tokens = hub.encode(text.lower())
    total = 0.0
    for i in range(1, len(tokens) - 1):
        masked = tokens.clone()
        masked[i] = hub.task.mask_idx
        with torch.no_grad():
            logits = hub.model(masked[None])[0][0, i].double()
        total += (logits[tokens[i]] - logits.logsumexp(0)).item()
    return total


def test_against_one_mask_at_a_time(folder, data, monkeypatch):
    # Several batches of equal length.
    monkeypatch.setattr(blimp, "TOKENS", 150)
    hub = TupeRobertaModel.from_pretrained(folder)
    texts = [text for pair in PAIRS for text in pair[2:]]
    found = blimp.scores(hub, [hub.encode(text) for text in texts])
    expected = [one_by_one(hub, text) for text in texts]
    assert found == pytest.approx(expected, abs=1e-4)

    blimp.main([str(folder), "--data", str(data)])
    written = json.loads((folder / "blimp.json").read_text())
    wins = [good > bad for good, bad in zip(expected[::2], expected[1::2], strict=True)]
    shares = {"one": 100 * sum(wins[:3]) / 3, "two": 100.0 * wins[3], "three": 0.0}
    assert written["paradigms"] == pytest.approx(shares)
    assert written["phenomena"]["argument_structure"] == pytest.approx(shares["two"] / 2)
    assert written["mean"] == pytest.approx(sum(shares.values()) / 3)


@pytest.mark.parametrize("record", [True, False, None])
def test_case_is_that_of_the_record(record, folder, data, tmp_path, capsys):
    """Not that of the tokens: a script may have no capital letters."""
    for file in ("dict.txt", "sentencepiece.bpe.model", "model.pt"):
        shutil.copy(folder / file, tmp_path)
    if record is not None:
        record_preprocessing(tmp_path, lowercase=record)
    hub = TupeRobertaModel.from_pretrained(tmp_path)
    _, sentences, _ = blimp.encoded(hub, [blimp.Pair(*PAIRS[0])])
    unknown = hub.task.source_dictionary.unk()
    assert (unknown in sentences[0]) is not bool(record)
    blimp.main([str(tmp_path), "--data", str(data), "--pairs", "1"])
    told = f"{tmp_path} has no preprocessing.json: sentences are not lowercased"
    assert (told in capsys.readouterr().out) == (record is None)


def test_pairs_longer_than_the_model_reads_are_left_out(folder, data, tmp_path):
    for file in ("dict.txt", "sentencepiece.bpe.model"):
        shutil.copy(folder / file, tmp_path)
    lengths = [len(TupeRobertaModel.from_pretrained(folder).encode(text)) for text in LINES]
    short = ("--max-positions", str(min(lengths)), "--tokens-per-sample", str(min(lengths)))
    shutil.copy(pretrain(folder, tmp_path / "save", *short), tmp_path / "model.pt")
    blimp.main([str(tmp_path), "--data", str(data)])
    written = json.loads((tmp_path / "blimp.json").read_text())
    assert written["left_out"] > 0
    assert written["pairs"] + written["left_out"] == len(PAIRS)


def test_a_model_where_it_was_trained(folder, data):
    # The tokenizer lies beside the training data only.
    blimp.main([str(folder / "save"), "--data", str(data), "--dictionary", str(folder)])
    written = json.loads((folder / "save" / "blimp.json").read_text())
    assert written["pairs"] == len(PAIRS)


def test_orders_that_a_model_cannot_distinguish_are_equal(folder, tmp_path):
    words = ["the", "cat", "sat", "on", "the", "mat", "and", "dogs", "ran", "over", "the", "hill"]
    orders = [" ".join(words[i:] + words[:i]) for i in range(len(words))]
    pairs = [("one", "binding", *both) for both in permutations(orders, 2)]
    data = write_pairs(tmp_path / "blimp.jsonl.xz", pairs)
    for file in ("dict.txt", "sentencepiece.bpe.model"):
        shutil.copy(folder / file, tmp_path)
    none = ("--position-encoding", "none")
    shutil.copy(pretrain(folder, tmp_path / "save", *none), tmp_path / "model.pt")
    blimp.main([str(tmp_path), "--data", str(data)])
    assert json.loads((tmp_path / "blimp.json").read_text())["paradigms"]["one"] == 0


def test_bad_data(folder, tmp_path):
    (tmp_path / "x.jsonl").write_text('{"UID": "a"}\n')
    with pytest.raises(UsageError, match=r"x\.jsonl, line 1: not a pair"):
        blimp.main([str(folder), "--data", str(tmp_path / "x.jsonl")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="holds no pairs"):
        blimp.main([str(folder), "--data", str(tmp_path / "empty")])
    write_pairs(tmp_path / "empty.jsonl.xz", [("one", "binding", "a dog ran", " ")])
    with pytest.raises(UsageError, match=r"line 1: not a pair \(a sentence is empty\)"):
        blimp.main([str(folder), "--data", str(tmp_path / "empty.jsonl.xz")])


def test_damaged_data(folder, data, tmp_path):
    whole = data.read_bytes()
    damaged = {"cut.jsonl.xz": whole[:-20], "no.jsonl.xz": b"no xz", "no.jsonl": b"\xff"}
    for name, content in damaged.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UsageError, match=rf"--data: cannot read .*{name}"):
            blimp.main([str(folder), "--data", str(tmp_path / name)])
