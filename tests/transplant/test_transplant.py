"""`transplant`: another position encoding inside any model, saved and loaded by its library."""

import json
import random
import types
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.convert.test_same_ids import ROBERTA, unigram
from tests.examples.test_serving import WORDS, write
from tests.huggingface.encoders import build
from tests.tolerances import assert_close
from tests.transplant import write_lines
from tupe_fairseq import UsageError

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from tupe_fairseq.huggingface import TupeForSequenceClassification, TupeModel  # noqa: E402
from tupe_fairseq.transplant import transplant  # noqa: E402

SHORT = {"length": 16, "batch_size": 8, "updates": 30}
LONG = " ".join(random.Random(3).choices(WORDS, k=2000))


@pytest.fixture(scope="module")
def texts() -> list[str]:
    draw = random.Random(0)
    return [" ".join(draw.choices(WORDS, k=draw.randint(2, 30))) for _ in range(1100)]


@pytest.fixture
def source(tmp_path) -> Path:
    """A BERT of 64 positions with a tokenizer."""
    write(folder := tmp_path / "bert", "Model")
    return folder


def test_sentence_transformer(source, texts, tmp_path):
    """The rest stays; longer texts are read; the library saves and loads it."""
    library = pytest.importorskip("sentence_transformers")
    model = library.SentenceTransformer(str(source), device="cpu")
    before = model.encode(WORDS)
    flags = SHORT | {"max_positions": 2100, "attention_window": 50}
    made = transplant(model, texts, "tupe_r", **flags)
    assert (model.encode(WORDS) == before).all(), "the model itself stays"
    assert type(made) is library.SentenceTransformer
    assert type(made[0].auto_model) is TupeModel
    assert made[0].auto_model.config.attention_window == 50
    assert [type(each) for each in made] == [type(each) for each in model]
    made.save_pretrained(str(tmp_path / "saved"))
    loaded = library.SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    pair = [LONG, LONG.rsplit(" ", 1)[0] + " good"]
    found = loaded.encode(pair)
    assert (found == made.encode(pair)).all()
    assert (found[0] != found[1]).any(), "it reads the last of 2,000 tokens"
    assert (model.encode(pair)[0] == model.encode(pair)[1]).all()


def test_cross_encoder(texts, tmp_path):
    """Its head stays, trained on the source's features."""
    library = pytest.importorskip("sentence_transformers")
    write(folder := tmp_path / "bert", "ForSequenceClassification", num_labels=1)
    model = library.CrossEncoder(str(folder), device="cpu")
    flags = SHORT | {"max_positions": 2100, "updates": 60, "lr": 1e-3}
    made = transplant(model, texts, "t5", **flags)
    assert type(made) is library.CrossEncoder
    made.save_pretrained(str(tmp_path / "saved"))
    loaded = library.CrossEncoder(str(tmp_path / "saved"), device="cpu")
    pairs = [("the man", " ".join(text.split()[:9])) for text in texts[:40]]
    expected, found = (torch.tensor(each.predict(pairs)) for each in (model, loaded))
    assert torch.corrcoef(torch.stack((expected, found)))[0, 1] > 0.7
    last = LONG.rsplit(" ", 1)[0]
    first, second = loaded.predict([("a", f"{last} good"), ("a", f"{last} bad")])
    assert first != second


def test_classifier(texts, tmp_path):
    """A model of transformers becomes one of this package, with the names of its classes."""
    write(folder := tmp_path / "bert", "ForSequenceClassification", num_labels=3)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    model.config.id2label = {0: "one", 1: "two", 2: "three"}
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    made = transplant(model, texts, "alibi", tokenizer=tokenizer, max_positions=2100, **SHORT)
    assert type(made) is TupeForSequenceClassification
    made.save_pretrained(tmp_path / "saved")
    loaded = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved")
    ids = torch.tensor([tokenizer(LONG, verbose=False)["input_ids"]])
    assert ids.shape[1] > 2000
    # Products may round by the address of a tensor, so outputs are not compared bit by bit.
    with torch.no_grad():
        assert_close(loaded.eval()(ids).logits, made.eval()(ids).logits)
    expected = made.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in loaded.state_dict().items())
    assert loaded.config.id2label == {0: "one", 1: "two", 2: "three"}


class Finder(nn.Module):
    """The form of GLiNER, with the configuration of the encoder that it loads."""

    def __init__(self, name: str, tokenizer: object):
        super().__init__()
        self.encoder = build(name)
        self.rnn = nn.LSTM(24, 12, batch_first=True)
        self.config = types.SimpleNamespace(encoder_config=self.encoder.config, max_len=384)
        self.data_processor = types.SimpleNamespace(transformer_tokenizer=tokenizer)


@pytest.mark.parametrize("name", ["xlm_roberta", "v3", "mpnet"])
def test_any_module(name, source, texts):
    """In fp64, too; what is beside the encoder is copied."""
    model = Finder(name, transformers.AutoTokenizer.from_pretrained(source)).double()
    made = transplant(model, texts, "deberta", **SHORT | {"updates": 1, "max_positions": 300})
    assert type(made.encoder) is TupeModel
    assert made.config.encoder_config is made.encoder.config
    assert model.config.encoder_config.model_type != "tupe"
    assert made.encoder.dtype == torch.float64
    assert made.data_processor.transformer_tokenizer.model_max_length == 300
    assert model.data_processor.transformer_tokenizer.model_max_length == 64
    assert torch.equal(made.rnn.weight_hh_l0, model.rnn.weight_hh_l0)
    assert made.rnn is not model.rnn


def test_xlm_roberta(texts, tmp_path):
    """With its own tokenizer, whose ids of special tokens are not BERT's."""
    (folder := tmp_path / "source").mkdir()
    unigram(folder, (*ROBERTA, "<mask>"), "XLMRobertaTokenizer")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = build("xlm_roberta", vocab_size=len(tokenizer))
    given = SHORT | {"max_positions": 8192, "pairs": 0}
    made = transplant(model, texts, "tupe_r", tokenizer=tokenizer, **given)
    made.save_pretrained(tmp_path / "saved")
    loaded = transformers.AutoModel.from_pretrained(tmp_path / "saved").eval()
    assert type(loaded) is TupeModel
    # Of this tokenizer, a word has four tokens on average.
    words = LONG.split()[:600]
    other = WORDS[WORDS.index(words[-1]) - 1]
    pair = [" ".join(words), " ".join([*words[:-1], other])]
    ids = [torch.tensor([tokenizer(text, verbose=False)["input_ids"]]) for text in pair]
    assert ids[0].shape[1] > 2000
    with torch.no_grad():
        expected = [made.eval()(each).last_hidden_state[:, 0] for each in ids]
        found = [loaded(each).last_hidden_state[:, 0] for each in ids]
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other)
    assert not torch.equal(*found), "it reads the last of 2,000 tokens"


def test_gliner(source, texts, tmp_path):
    """GLiNER's own class, with random parameters, saves and loads it."""
    gliner = pytest.importorskip("gliner", reason="gliner is not installed")
    config = gliner.GLiNERConfig(
        model_name=str(source),
        max_len=3000,
        hidden_size=24,
        encoder_config=build("v3").config.to_dict(),
        vocab_size=-1,
        class_token_index=5,
    )
    torch.manual_seed(0)
    model = gliner.GLiNER.from_config(config, load_tokenizer=True, backbone_from_pretrained=False)
    made = transplant(model, texts, "tupe_r", **SHORT | {"max_positions": 3000})
    made.save_pretrained(tmp_path / "saved")
    loaded = gliner.GLiNER.from_pretrained(str(tmp_path / "saved"))
    for each in (model, made, loaded):
        each.eval()
    found = [each.predict_entities(LONG, ["dog"], threshold=0.0) for each in (made, loaded)]
    assert found[0] == found[1]
    assert max(each["end"] for each in found[0]) > 0.9 * len(LONG)


def test_a_second_call_goes_on(source, texts, tmp_path):
    """An interrupted call or one with more updates; other settings are refused."""
    encoder = transformers.AutoModel.from_pretrained(source)
    given = {"tokenizer": transformers.AutoTokenizer.from_pretrained(source), **SHORT}
    given |= {"out": tmp_path / "out"}
    once = transplant(encoder, texts, "rope", **given)
    again = transplant(encoder, texts, "rope", **given)
    assert all(map(torch.equal, once.parameters(), again.parameters()))
    more = transplant(encoder, texts, "rope", **given | {"updates": 110})
    history = json.loads((tmp_path / "out/progress.json").read_text())
    assert [each["update"] for each in history] == [0, 30, 100, 110]
    assert history[-1]["error"] < history[1]["error"]
    assert not all(map(torch.equal, once.parameters(), more.parameters()))
    for other in ({"lr": 1e-5}, {"seed": 2}):
        with pytest.raises(UsageError, match="holds a run with other settings"):
            transplant(encoder, texts, "rope", **given | other)
    with pytest.raises(UsageError, match="holds a run with other settings"):
        transplant(encoder, texts[1:], "rope", **given)


def test_mistakes(source, texts, tmp_path):
    """In one line."""
    bert = transformers.AutoModel.from_pretrained(source)
    other = build("bert", "ForNextSentencePrediction")
    (few := tmp_path / "few.txt").write_text("one\ntwo\nthree\n")
    write_lines(tmp_path / "lines.txt")
    pair = nn.ModuleDict({"query": bert, "text": build("roberta")})
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    for model, given, flags, message in (
        (pair, texts, {}, "has 2 encoders, 'query' and 'text': give the part"),
        (nn.Linear(2, 2), texts, {}, "a Linear without a known encoder; known are: BertModel"),
        (other, texts, {}, "BertForNextSentencePrediction, whose head cannot be kept"),
        ("bert", texts, {}, "model is a str, but must be an nn.Module"),
        (bert, few, {}, "few.txt' with 3 different lines, but at least 1,000"),
        (bert, texts[:3], {}, "list of 3 with 3 different lines"),
        (bert, texts, {"max_positions": 40, "length": 50}, "is 50, but must be at most 40"),
        (bert, texts, {"length": 80}, "is 80, but must be at most 64"),
        (bert, texts, {"start": "middle"}, "is 'middle', but must be one of: mean"),
        (bert, texts, {"tokenizer": None}, "in which there is no tokenizer: give tokenizer="),
        (bert, texts, {"num_buckets": 3}, "--num-buckets does not apply"),
    ):
        with pytest.raises(UsageError, match=message) as told:
            transplant(model, given, "rope", **{"tokenizer": tokenizer, **flags})
        assert "\n" not in str(told.value)
