"""RoBERTa and BERT of transformers: equal outputs as `learned`, and starts of other encodings."""

import json
from pathlib import Path

import pytest
import torch

from tests.tolerances import assert_close
from tupe_fairseq import TupeRobertaModel, UsageError
from tupe_fairseq.interop.convert import convert
from tupe_fairseq.interop.formats import huggingface
from tupe_fairseq.interop.keys import HEAD
from tupe_fairseq.interop.model_files import read_tensors, write_tensors

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
import tokenizers  # noqa: E402 (comes with transformers)

TEXT = ["the cat sat on the mat .", "a bird saw it , and the cat saw a bird"]
SIZES = {
    **{"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "vocab_size": 60},
    **{"num_attention_heads": 4, "max_position_embeddings": 40, "layer_norm_eps": 1e-5},
}


def save(model, folder: Path) -> Path:
    """Save a model with parameters large enough for each to matter."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    model.eval().save_pretrained(folder)
    return folder


def wordpieces(folder: Path) -> Path:
    """A tokenizer as BERT's, with its special symbols among the words."""
    words = sorted({word for line in TEXT for word in line.split()} - {"a"})
    words = ["[PAD]", "a", "##s", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]")
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def bert(folder: Path, kind: str = "ForMaskedLM", **changes) -> Path:
    config = transformers.BertConfig(**SIZES | changes)
    return wordpieces(save(getattr(transformers, f"Bert{kind}")(config), folder))


def bytepairs(folder: Path) -> Path:
    """A tokenizer as RoBERTa's."""
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer.train_from_iterator(TEXT * 9, vocab_size=280, special_tokens=special)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def roberta(folder: Path, kind: str = "ForMaskedLM", **changes) -> Path:
    config = transformers.RobertaConfig(
        **SIZES | {"vocab_size": 290, "type_vocab_size": 1} | changes
    )
    return bytepairs(save(getattr(transformers, f"Roberta{kind}")(config), folder))


MASKED, CLASSIFIER, NEXT = "ForMaskedLM", "ForSequenceClassification", "ForPreTraining"


@pytest.mark.parametrize(
    ("make", "kind"),
    [(bert, MASKED), (bert, CLASSIFIER), (bert, NEXT), (roberta, MASKED), (roberta, CLASSIFIER)],
)
def test_outputs_are_equal(make, kind, tmp_path):
    """--check compares hidden states and logits, or those of the classifier."""
    source = make(tmp_path / "source", kind, num_labels=3)
    out = tmp_path / "out"
    lines = convert(["--from", "huggingface", str(source), "--out", str(out), "--check"])
    what = "logits of the head (3, 3)" if kind == CLASSIFIER else "logits ("
    assert any(line.startswith(what) for line in lines), lines
    if make is bert:
        assert any("token type 0 is added to the positions; left out: 1" in line for line in lines)
    assert ("left out: cls.seq_relationship.*" in lines) == (kind == NEXT)


def test_a_regression_of_bert_by_its_own_ids(tmp_path):
    """Ids by fairseq's dictionary of WordPieces, positions and special symbols, by hand."""
    source = bert(tmp_path / "source", "ForSequenceClassification", num_labels=1)
    convert(["--from", "huggingface", str(source), "--out", str(tmp_path / "out")])
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
    lines = convert(["--from", "huggingface", str(source), "--out", str(tmp_path / "out")])
    assert any("binarise with --bpe gpt2" in line for line in lines)
    ours = TupeRobertaModel.from_pretrained(tmp_path / "out")
    tokenizer = tokenizers.Tokenizer.from_file(str(source / "tokenizer.json"))
    for text in (*TEXT, "Äpfel 😀 12  x"):
        assert ours.encode(text).tolist() == [0, *tokenizer.encode(text).ids, 2]


@pytest.mark.parametrize("make", [bert, roberta])
@pytest.mark.parametrize("encoding", ["tupe_r", "rope"])
def test_warm_start(make, encoding, tmp_path):
    """Words and layers are the source's, also with another `layer_norm_eps`."""
    source = make(
        tmp_path / "source",
        type_vocab_size=2,
        **({"layer_norm_eps": 1e-12} if make is bert else {}),
    )
    arguments = ["--from", "huggingface", str(source), "--position-encoding", encoding]
    lines = convert([*arguments, "--out", str(tmp_path / "out"), "--check"])
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


def test_other_eps_is_not_compared(tmp_path):
    source = bert(tmp_path / "source", layer_norm_eps=1e-12)
    command = ["--from", "huggingface", str(source), "--out", str(tmp_path / "out"), "--check"]
    assert convert(command)[-1] == "not compared: layer_norm_eps is 1e-12 there and 1e-05 here"


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"model_type": "modernbert"}, "ModernBERT normalises before its layers"),
        ({"model_type": "gpt2"}, "not a configuration of RoBERTa, BERT or tupe: .* 'gpt2'"),
        ({"model_type": ["bert"]}, "not a configuration of RoBERTa"),
        ({"hidden_act": "relu"}, "unsupported hidden_act in .*: 'relu'"),
        ({"position_embedding_type": "relative_key"}, "unsupported position_embedding_type"),
        ({"num_attention_heads": 5}, "invalid encoder_attention_heads"),
    ],
)
def test_refused_configurations(changes, part, tmp_path):
    path = bert(tmp_path / "source") / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(UsageError, match=part) as error:
        huggingface.read(tmp_path / "source")
    assert "\n" not in str(error.value)


WORDPIECE = (
    '{"model": {"type": "WordPiece", "unk_token": "a", "continuing_subword_prefix": "##", '
    '"max_input_chars_per_word": 9, "vocab": {"a": %d}}}'
)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (None, r"has neither tokenizer\.json nor vocab\.txt"),
        ("{", "cannot be read"),
        ('{"model": {"type": "BPE", "vocab": {}, "merges": []}}', "is not a WordPiece tokenizer"),
        (WORDPIECE % 0, r"lacks \[CLS\], \[PAD\]"),
        (WORDPIECE % 7, "with ids 0, 1, 2"),
    ],
)
def test_refused_tokenizers(text, part, tmp_path):
    path = bert(tmp_path / "source") / "tokenizer.json"
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(UsageError, match=part) as error:
        huggingface.read(tmp_path / "source")
    assert "\n" not in str(error.value)


def test_parameters_of_other_shapes(tmp_path):
    """Scalars, other sizes and missing parameters, each in one line."""
    source = bert(tmp_path / "source", CLASSIFIER)
    path = source / "model.safetensors"
    whole = read_tensors(path)
    for name in whole:
        for value in (None, torch.zeros(()), torch.zeros(3, 5)):
            changed = {n: v for n, v in (whole | {name: value}).items() if v is not None}
            write_tensors(path, changed)
            # Token types that are missing or zero change nothing.
            if "token_type" in name:
                continue
            with pytest.raises(UsageError) as error:
                huggingface.read(source)
            assert "\n" not in str(error.value)


def test_options_that_do_not_apply(tmp_path):
    source = bert(tmp_path / "source")
    with pytest.raises(UsageError, match="--dict does not apply to BERT"):
        huggingface.read(source, source / "dict.txt")
    with pytest.raises(UsageError, match="'tupe', but the known ones are"):
        huggingface.read(source, position_encoding="tupe")


def test_classifier_dropout_of_zero(tmp_path):
    """Only null stands for hidden_dropout_prob."""
    for dropout, expected in ((0.0, 0.0), (None, 0.1)):
        source = roberta(tmp_path / str(dropout), classifier_dropout=dropout)
        assert huggingface.read(source).settings["pooler_dropout"] == expected
