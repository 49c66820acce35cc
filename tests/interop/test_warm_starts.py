"""RoBERTa and BERT of transformers: equal outputs as `learned`, and starts of other encodings."""

import pytest
import torch

from tests.interop.samples import TEXT, bert, roberta, run
from tests.tolerances import assert_close
from tupe_fairseq import TupeRobertaModel
from tupe_fairseq.interop.formats import huggingface
from tupe_fairseq.interop.models import HEAD

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
import tokenizers  # noqa: E402 (comes with transformers)

MASKED, CLASSIFIER, NEXT = "ForMaskedLM", "ForSequenceClassification", "ForPreTraining"


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
    if make is bert:
        assert any("token type 0 is added to the positions; left out: 1" in line for line in lines)
    assert ("left out: cls.seq_relationship.*" in lines) == (kind == NEXT)


def test_a_regression_of_bert_by_its_own_ids(tmp_path):
    """Ids by fairseq's dictionary of WordPieces, positions and special symbols, by hand."""
    source = bert(tmp_path / "source", "ForSequenceClassification", num_labels=1)
    run("--from", "huggingface", source, tmp_path / "out")
    ours = TupeRobertaModel.from_pretrained(tmp_path / "out")
    model = transformers.BertForSequenceClassification.from_pretrained(source).eval()
    tokenizer = tokenizers.Tokenizer.from_file(str(source / "tokenizer.json"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    coded = tokenizer.encode(f"{TEXT[1]} unheard of")
    ids = [tokenizer.token_to_id("[CLS]"), *coded.ids, tokenizer.token_to_id("[SEP]")]
    words = " ".join(["<s>", *coded.tokens])
    dictionary = ours.task.source_dictionary
    tokens = dictionary.encode_line(words, add_if_not_exist=False).long()
    with torch.no_grad():
        expected = model(torch.tensor([ids])).logits
        assert_close(ours.predict(HEAD, tokens, return_logits=True), expected)


def test_roberta_brings_its_tokenizer(tmp_path):
    """The ids of a text by `--bpe gpt2` and dict.txt are those of transformers' tokenizer."""
    source = roberta(tmp_path / "source")
    lines = run("--from", "huggingface", source, tmp_path / "out")
    assert any("binarise with --bpe gpt2" in line for line in lines)
    ours = TupeRobertaModel.from_pretrained(tmp_path / "out")
    tokenizer = tokenizers.Tokenizer.from_file(str(source / "tokenizer.json"))
    for text in (*TEXT, "Äpfel 😀 12  x"):
        assert ours.encode(text).tolist() == [0, *tokenizer.encode(text).ids, 2]


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
    their_layer, layer = f"{name}.encoder.layer.1.", "encoder.sentence_encoder.layers.1."
    for theirs, ours in (
        ("attention.self.key.weight", "self_attn.k_proj.weight"),
        ("attention.output.LayerNorm.bias", "self_attn_layer_norm.bias"),
        ("intermediate.dense.weight", "fc1.weight"),
    ):
        assert torch.equal(state[layer + ours], before[their_layer + theirs])
    words = before[f"{name}.embeddings.word_embeddings.weight"]
    words = words + before[f"{name}.embeddings.token_type_embeddings.weight"][0]
    found = state["encoder.sentence_encoder.embed_tokens.weight"]
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
        assert huggingface.read(source).settings["pooler_dropout"] == expected
