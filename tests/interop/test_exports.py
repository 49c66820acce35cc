"""Exports to transformers: equal outputs, and round trips."""

import json

import pytest
import torch

from tests.fairseq_commands import finetune, parameters
from tests.interop.samples import assert_same_tokens, refused, run
from tupe_fairseq import TupeRobertaModel

transformers = pytest.importorskip("transformers", reason="transformers is not installed")


def tokens():
    ids = torch.randint(4, 200, (2, 30), generator=torch.Generator().manual_seed(0))
    ids[:, 0], ids[1, 20:] = 0, 1
    return ids


def outputs(directory):
    model = TupeRobertaModel.from_pretrained(directory).model
    with torch.no_grad():
        return model(tokens(), features_only=True)[0], model(tokens())[0]


@pytest.mark.parametrize("untied", [(), ("--untie-weights-roberta",)], ids=["tied", "untied"])
def test_learned_is_roberta_of_transformers(trained, tmp_path, untied):
    """Equal outputs there; parameters bit for bit back here, also after `save_pretrained`."""
    directory = trained("--position-encoding", "learned", *untied)
    source = {path: path.read_bytes() for path in directory.iterdir()}
    assert "logits" in run("--to", "huggingface", directory, tmp_path / "hf", "--check")[-1]
    assert {path: path.read_bytes() for path in directory.iterdir()} == source
    model, info = transformers.RobertaForMaskedLM.from_pretrained(
        str(tmp_path / "hf"), output_loading_info=True
    )
    assert not any(info.values()), info
    with torch.no_grad():
        out = model.eval()(tokens(), attention_mask=tokens().ne(1), output_hidden_states=True)
    assert_same_tokens((out.hidden_states[-1], out.logits), outputs(directory), tokens())
    model.save_pretrained(str(tmp_path / "again"))
    before, dictionary = parameters(directory / "checkpoint_last.pt"), directory / "dict.txt"
    for name in ("hf", "again"):
        out, flags = tmp_path / "back" / name, ("--dict", dictionary, "--check")
        assert "logits" in run("--from", "huggingface", tmp_path / name, out, *flags)[-1]
        back = parameters(out / "model.pt")
        assert back.keys() == before.keys()
        assert all(torch.equal(back[key], before[key]) for key in before)


def test_classifier_equals_transformers(toy_sentence_data, tmp_path):
    data = toy_sentence_data["single"]
    flags = ("--num-classes", 2, "--position-encoding", "learned", "--no-save-optimizer-state")
    checkpoint = finetune(data, tmp_path / "model", *flags)
    (checkpoint.with_name("dict.txt")).write_bytes((data / "input0" / "dict.txt").read_bytes())
    flags = ("--head", "sentence_classification_head", "--check")
    lines = run("--to", "huggingface", tmp_path / "model", tmp_path / "hf", *flags)
    assert "logits of the head" in lines[-1]
    _, info = transformers.RobertaForSequenceClassification.from_pretrained(
        str(tmp_path / "hf"), output_loading_info=True
    )
    assert not any(info.values()), info


def test_outputs_equal_own_classes(trained, tmp_path):
    directory, classes = trained("--position-encoding", "learned"), ("--classes", "tupe")
    lines = run("--to", "huggingface", directory, tmp_path / "hf", "--check", *classes)
    assert "logits" in lines[-1]
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["model_type"] == "tupe"
    lines = run("--from", "huggingface", tmp_path / "hf", tmp_path / "back", "--check")
    assert "logits" in lines[-1]
    before = parameters(directory / "checkpoint_last.pt")
    after = parameters(tmp_path / "back" / "model.pt")
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_a_failing_comparison_leaves_nothing(trained, tmp_path, monkeypatch):
    monkeypatch.setattr("tupe_fairseq.interop.check.TOLERANCE", -1.0)
    with refused("gives other outputs than its source: logits"):
        run("--to", "huggingface", trained(), tmp_path / "out", "--check")
    assert not list(tmp_path.iterdir())
