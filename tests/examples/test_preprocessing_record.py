"""Texts are lowercased by `from_pretrained` as they were before training."""

import json
import shutil
import sys

import pytest

from examples.pretraining import clean, encode
from examples.quickstart import tokenizer
from tests.fairseq_commands import pretrain, train_lm
from tupe_fairseq import TupeRobertaModel, TupeTransformerLM, UsageError

LINES = [
    "Once upon a time, there was a cat.",
    "The Cat saw a Dog",
    "and the dog ran over the HILL",
]


@pytest.fixture(scope="module", params=[False, True], ids=["lowercased", "cased"])
def data(request, tmp_path_factory):
    """Data by clean.py and encode.py, and whether it is cased."""
    root = tmp_path_factory.mktemp("data")
    # The first line of a document decides whether it is held out.
    (root / "raw.txt").write_text("\n\n".join("\n".join([str(i), *LINES]) for i in range(40)))
    flags = ["--workers", "1", "--valid-share", "0.4", *(["--cased"] if request.param else [])]
    clean.main([str(root / "raw.txt"), "--out", str(root / "text"), *flags])
    words = ["--out", str(root / "bin"), "--sentencepiece", "90", "--binarise", "--workers", "1"]
    encode.main([str(root / "text"), *words])
    return root / "bin", request.param


@pytest.mark.parametrize("model", [TupeRobertaModel, TupeTransformerLM])
def test_hub(data, model, tmp_path):
    folder, cased = data
    shutil.copytree(folder, tmp_path / "model")
    train = pretrain if model is TupeRobertaModel else train_lm
    flags = ("--max-update", 1, "--tokens-per-sample", 16)
    shutil.copy(train(folder, tmp_path / "run", *flags), tmp_path / "model/model.pt")
    hub = model.from_pretrained(tmp_path / "model")
    text = "Once upon a Dog"
    tokens, lower = (hub.encode(each).tolist() for each in (text, text.lower()))
    assert (tokens == lower) is not cased
    assert 3 not in tokens, "no <unk>"
    if model is TupeTransformerLM:
        begin = hub.sample("Once upon", beam=1, max_len_b=2)
        assert begin.startswith("Once upon" if cased else "once upon")
    else:
        filled = hub.fill_mask("The <mask> Dog", topk=1)[0][0]
        assert filled.startswith("The" if cased else "the")
    (tmp_path / "model/preprocessing.json").write_text('{"lowercase": "yes"}')
    with pytest.raises(UsageError, match=r"preprocessing\.json is damaged: it must be"):
        model.from_pretrained(tmp_path / "model")


def test_quickstart(tmp_path, monkeypatch):
    (tmp_path / "text").mkdir()
    for name in ("pretrain.train", "pretrain.valid"):
        (tmp_path / "text" / name).write_text("\n".join(LINES * 20).lower())
    monkeypatch.setattr(sys, "argv", ["tokenizer", str(tmp_path / "text"), str(tmp_path / "out")])
    names = ("pretrain.train", "pretrain.valid")
    monkeypatch.setattr(tokenizer, "VOCABULARIES", {"pretrain": (50, names)})
    tokenizer.main()
    record = (tmp_path / "out/pretrain/preprocessing.json").read_text()
    assert json.loads(record) == {"lowercase": True}
