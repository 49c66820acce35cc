"""The examples run on a tiny model."""

import math
import runpy
import sys

import pytest
import torch
import torch.nn.functional as F

from tests import ROOT
from tests.convert.pieces import dictionary_of_pieces, train
from tests.huggingface.samples import LENGTH, masked_lm
from tests.pages import blocks

pytest.importorskip("transformers", reason="transformers is not installed (extra hf)")

from tupe_fairseq.convert.fast_tokenizers import write_tokenizer


@pytest.fixture
def directory(tmp_path):
    """A masked language model with its tokenizer."""
    import tupe_fairseq.huggingface  # noqa: F401 (the directory has no code of its own here)

    dictionary = dictionary_of_pieces(train(tmp_path))
    assert write_tokenizer(tmp_path, tmp_path, dictionary, LENGTH) == ""
    masked_lm(vocab_size=len(dictionary) + 1).save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_training_from_scratch(directory, monkeypatch):
    """The lines of the page, with a small model; they train it, and it is loaded again."""
    from transformers import AutoModelForMaskedLM

    monkeypatch.chdir(directory.parent)
    (directory.parent / "TEXT.txt").write_text("a good movie .\na bad movie .\n" * 20)
    (code,) = blocks(ROOT / "examples" / "huggingface" / "README.md", "python")
    smaller = {
        "TOKENIZER": str(directory),
        "10_000": "60",
        "5e-4": "5e-3",
        "=1000": "=2",
        "=1024": "=32",
    }
    smaller |= {"=256": "=32", "layers=6": "layers=1", "heads=8": "heads=2"}
    for old, new in smaller.items():
        assert code.count(old) == 1, old
        code = code.replace(old, new)
    torch.manual_seed(0)
    names: dict = {}
    exec(code, names)
    assert names["model"].tupe.encoder.embed_positions.uses("at"), "fire has a function by layer"
    model = AutoModelForMaskedLM.from_pretrained("fire").eval()
    tokenizer = names["tokenizer"]
    # Each token of a sentence but <s> and </s> is hidden once.
    right = torch.tensor(tokenizer("a good movie .").input_ids)
    hidden = right.repeat(len(right), 1).fill_diagonal_(tokenizer.mask_token_id)
    with torch.no_grad():
        logits = model(hidden).logits.diagonal().T[1:-1]
    loss = F.cross_entropy(logits, right[1:-1]).item()
    assert loss < math.log(model.config.vocab_size) - 1, "better than equal probabilities"


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ((), 2, "the following arguments are required: PROGRAM"),
        (("nowhere",), "error: PROGRAM is 'nowhere', but has no config.json: see --to onnx.", ""),
    ],
)
def test_mistakes_in_serving(words, status, message, tmp_path, monkeypatch, capsys):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (extra onnx)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["serve", *words])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("examples.huggingface.serve", run_name="__main__")
    assert ended.value.code == status
    assert message in capsys.readouterr().err
