"""RoBERTa and BERT of transformers: equal outputs as `learned`, and starts of other encodings."""

import pytest
import torch

from tests.convert.samples import bert, roberta, run
from tests.tolerances import assert_close
from tupe_fairseq import TupeRobertaModel

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

MASKED = "ForMaskedLM"
CLASSIFIER = "ForSequenceClassification"
NEXT = "ForPreTraining"


@pytest.mark.parametrize(
    ("make", "kind"),
    [(bert, MASKED), (bert, CLASSIFIER), (bert, NEXT), (roberta, MASKED), (roberta, CLASSIFIER)],
)
def test_outputs_are_equal(make, kind, tmp_path):
    """--check compares hidden states and logits, or those of the classifier."""
    source = make(tmp_path / "source", kind, num_labels=3)
    lines = run("--from", "huggingface", source, tmp_path / "out", "--check")
    what = "logits of the head:" if kind == CLASSIFIER else "logits:"
    assert any(line.startswith(what) for line in lines), lines
    assert "ids of 7 texts: equal" in lines
    assert ("left out: cls.seq_relationship.*" in lines) == (kind == NEXT)


@pytest.mark.parametrize("make", [bert, roberta])
@pytest.mark.parametrize("encoding", ["tupe_r", "rope"])
def test_warm_start(make, encoding, tmp_path):
    """Words and layers are the source's, also with another `layer_norm_eps`."""
    eps = {"layer_norm_eps": 1e-12} if make is bert else {}
    source = make(tmp_path / "source", type_vocab_size=2, **eps)
    flags = ("--position-encoding", encoding, "--check")
    lines = run("--from", "huggingface", source, tmp_path / "out", *flags)
    assert any(line.startswith("not compared: ") for line in lines)
    (new,) = (line for line in lines if line.startswith("new, "))
    assert ("embed_positions" in new) == (encoding == "tupe_r")
    assert "layers.0" not in new
    before = transformers.AutoModelForMaskedLM.from_pretrained(source).state_dict()
    state = TupeRobertaModel.from_pretrained(tmp_path / "out").model.state_dict()
    name = make.__name__
    their_layer = f"{name}.encoder.layer.1."
    layer = "encoder.sentence_encoder.layers.1."
    for theirs, ours in (
        ("attention.self.key.weight", "self_attn.k_proj.weight"),
        ("attention.output.LayerNorm.bias", "self_attn_layer_norm.bias"),
        ("intermediate.dense.weight", "fc1.weight"),
    ):
        assert torch.equal(state[layer + ours], before[their_layer + theirs])
    words, types = (
        before[f"{name}.embeddings.{part}_embeddings.weight"] for part in ("word", "token_type")
    )
    found = state["encoder.sentence_encoder.embed_tokens.weight"]
    kept = types if make is bert else types[:1]
    assert torch.equal(state["encoder.sentence_encoder.embed_token_types.weight"], kept)
    assert_close(found.sum(0), words.sum(0))
    assert torch.equal(found, state["encoder.lm_head.weight"])


@pytest.mark.parametrize("make", [bert, roberta])
def test_other_eps_is_kept(make, tmp_path):
    """One so large that 1e-5 would give other logits."""
    source = make(tmp_path / "source", layer_norm_eps=0.1)
    lines = run("--from", "huggingface", source, tmp_path / "out", "--check")
    assert lines[-1].startswith("logits")


def test_classifier_dropout_of_zero(tmp_path):
    """Only null stands for hidden_dropout_prob."""
    for dropout, expected in ((0.0, 0.0), (None, 0.1)):
        source = roberta(tmp_path / str(dropout), classifier_dropout=dropout)
        run("--from", "huggingface", source, tmp_path / f"{dropout}-out")
        model = TupeRobertaModel.from_pretrained(tmp_path / f"{dropout}-out").model
        assert model.args.pooler_dropout == expected
