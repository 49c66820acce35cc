"""Exports to transformers: equal outputs, and round trips."""

import json

import pytest
import torch

from tests.fairseq_commands import finetune, parameters
from tests.interop.samples import assert_same_tokens
from tupe_fairseq import TupeRobertaModel, UsageError
from tupe_fairseq.interop.convert import convert

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
    arguments = ["--to", "huggingface", str(directory), "--out", str(tmp_path / "hf"), "--check"]
    assert [line for line in convert(arguments) if line.startswith("logits")]
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
        command = ["--from", "huggingface", str(tmp_path / name), "--dict", str(dictionary)]
        assert "logits" in convert([*command, "--out", str(tmp_path / "b" / name), "--check"])[-1]
        back = parameters(tmp_path / "b" / name / "model.pt")
        assert back.keys() == before.keys()
        assert all(torch.equal(back[key], before[key]) for key in before)


def test_classifier_equals_transformers(toy_sentence_data, tmp_path):
    data = toy_sentence_data["single"]
    flags = ("--num-classes", 2, "--position-encoding", "learned", "--no-save-optimizer-state")
    checkpoint = finetune(data, tmp_path / "model", *flags)
    (checkpoint.with_name("dict.txt")).write_bytes((data / "input0" / "dict.txt").read_bytes())
    head = "sentence_classification_head"
    arguments = ["--to", "huggingface", str(tmp_path / "model"), "--out", str(tmp_path / "hf")]
    assert "logits of the head" in convert([*arguments, "--head", head, "--check"])[-1]
    _, info = transformers.RobertaForSequenceClassification.from_pretrained(
        str(tmp_path / "hf"), output_loading_info=True
    )
    assert not any(info.values()), info


@pytest.mark.parametrize("flags", [(), ("--position-encoding", "learned")])
def test_outputs_equal_own_classes(trained, tmp_path, flags):
    directory = trained(*flags)
    arguments = ["--to", "huggingface", str(directory), "--out", str(tmp_path / "hf"), "--check"]
    assert "logits" in convert([*arguments, *(("--classes", "tupe") if flags else ())])[-1]
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["model_type"] == "tupe"
    back = ["--from", "huggingface", str(tmp_path / "hf"), "--out", str(tmp_path / "back")]
    assert "logits" in convert([*back, "--check"])[-1]
    before = parameters(directory / "checkpoint_last.pt")
    after = parameters(tmp_path / "back" / "model.pt")
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_a_failing_comparison_leaves_nothing(trained, tmp_path, monkeypatch):
    monkeypatch.setattr("tupe_fairseq.interop.check.TOLERANCE", -1.0)
    command = ["--to", "huggingface", str(trained()), "--out", str(tmp_path / "out"), "--check"]
    with pytest.raises(UsageError, match="gives other outputs than its source: hidden states"):
        convert(command)
    assert not list(tmp_path.iterdir())
