"""A trained model with the encoding `learned` is the RoBERTa of transformers."""

import shutil

import pytest
import torch

from tests.convert.samples import assert_same_tokens, ids, refused, run
from tests.fairseq_commands import parameters
from tupe_fairseq import TupeRobertaModel
from tupe_fairseq.convert.formats import huggingface

transformers = pytest.importorskip("transformers", reason="transformers is not installed")


@pytest.mark.parametrize("untied", [(), ("--untie-weights-roberta",)], ids=["tied", "untied"])
def test_learned_is_roberta_of_transformers(trained, tmp_path, untied):
    """Equal outputs there; parameters bit for bit back here."""
    directory = trained("--position-encoding", "learned", *untied)
    there = tmp_path / "hf"
    source = {path: path.read_bytes() for path in directory.iterdir()}
    lines = run("--to", "huggingface", directory, there, "--check")
    assert lines[0].startswith("no tokenizer was written, so AutoTokenizer has nothing to load: ")
    assert "logits" in lines[-1]
    assert {path: path.read_bytes() for path in directory.iterdir()} == source
    model, info = transformers.RobertaForMaskedLM.from_pretrained(there, output_loading_info=True)
    assert not any(info.values()), info
    ours = TupeRobertaModel.from_pretrained(directory).model
    with torch.no_grad():
        out = model.eval()(ids(), attention_mask=ids().ne(1), output_hidden_states=True)
        expected = ours(ids(), features_only=True)[0], ours(ids())[0]
    assert_same_tokens((out.hidden_states[-1], out.logits), expected, ids())
    flags = ("--dict", directory / "dict.txt", "--check")
    assert "logits" in run("--from", "huggingface", there, tmp_path / "back", *flags)[-1]
    back = parameters(tmp_path / "back" / "model.pt")
    before = parameters(directory / "checkpoint_last.pt")
    assert back.keys() == before.keys()
    assert all(torch.equal(back[key], before[key]) for key in before)


def test_a_failing_comparison_leaves_nothing(trained, tmp_path, monkeypatch):
    model_card = huggingface.model_card

    def damaging(converted, model, *more):
        with torch.no_grad():
            model.base_model.embed_tokens.weight[5:] *= 1.001
        (folder,) = tmp_path.glob(".out.*")
        model.save_pretrained(folder)
        return model_card(converted, model, *more)

    monkeypatch.setattr(huggingface, "model_card", damaging)
    with refused("outputs of the converted model differ from its source: logits"):
        run("--to", "huggingface", trained(), tmp_path / "out", "--check")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("encoding", ["learned", "tupe_r"])
def test_models_trained_with_quantization_noise(encoding, trained, tmp_path):
    """They have a linear layer after their embeddings, which stock classes have not."""
    flags = ("--quant-noise-pq", 0.1, "--quant-noise-pq-block-size", 4)
    directory = trained("--position-encoding", encoding, *flags)
    there = tmp_path / "there"
    assert "logits" in run("--to", "huggingface", directory, there, "--check")[-1]
    if encoding == "learned":
        with refused("roberta supports quant_noise_pq 0.0 only, but the model's is 0.1"):
            run("--to", "huggingface", directory, tmp_path / "stock", "--classes", "roberta")
    words = ("--dict", directory / "dict.txt", "--check")
    assert "logits" in run("--from", "huggingface", there, tmp_path / "back", *words)[-1]
    before, after = (
        parameters(path) for path in (directory / "checkpoint_last.pt", tmp_path / "back/model.pt")
    )
    assert before.keys() == after.keys()
    assert all(torch.equal(after[key], before[key]) for key in before)
    back = TupeRobertaModel.from_pretrained(tmp_path / "back")
    assert back.model.args.quant_noise_pq == 0.1


def test_a_model_that_no_class_can_hold(trained, tmp_path):
    """The message does not name --classes tupe, which was given."""
    directory = shutil.copytree(trained("--position-encoding", "tupe_r"), tmp_path / "model")
    state = torch.load(directory / "checkpoint_last.pt", weights_only=True)
    state["model"]["encoder.sentence_encoder.layers.0.more"] = torch.zeros(3)
    torch.save(state, directory / "model.pt")
    with refused("1 unknown", "layers.0.more") as error:
        run("--to", "huggingface", directory, tmp_path / "out", "--classes", "tupe")
    assert "--classes" not in str(error.value)
