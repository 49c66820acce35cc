"""The page of serving: its blocks run, and what `optimize` returns is used as the original."""

import copy
import random
import runpy
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests import ROOT
from tests.attention.cases import enlarged
from tests.pages import blocks

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
library = pytest.importorskip(
    "sentence_transformers", reason="sentence-transformers is not installed"
)

from tests.convert.samples import writes_onnx  # noqa: E402
from tests.huggingface.deberta import RELEASED, SIZES  # noqa: E402
from tupe_fairseq.huggingface import optimize  # noqa: E402

PAGE = ROOT / "examples" / "serving" / "README.md"
WORDS = ["a", "the", "one", "man", "dog", "plays", "sees", "good", "bad", "film", "in", "city"]
BERT = "google-bert/bert-base-uncased"
RANKER = "cross-encoder/ms-marco-MiniLM-L6-v2"
MINILM = "all-MiniLM-L6-v2"


def sentences(count: int, longest: int = 40) -> list[str]:
    """Sentences of one to `longest` words, in no order of length."""
    draw = random.Random(count)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, longest))) for _ in range(count)]


def write(folder: Path, head: str, **options) -> None:
    """A random small BERT and its tokenizer."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(words))
    tokenizer = transformers.BertTokenizer(str(folder / "vocab.txt"), model_max_length=64)
    tokenizer.save_pretrained(folder)
    sizes = {name: SIZES[name] for name in SIZES if name != "relative_attention"}
    sizes |= {"vocab_size": len(words), "max_position_embeddings": 64, **options}
    torch.manual_seed(0)
    model = getattr(transformers, f"Bert{head}")(transformers.BertConfig(**sizes))
    enlarged(model, seed=0).save_pretrained(folder)


class GLiNER(nn.Module):
    """The form of GLiNER: `model.token_rep_layer.bert_layer.model` is a DebertaV2Model."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        encoder = transformers.DebertaV2Model(transformers.DebertaV2Config(**SIZES, **RELEASED))
        self.model = nn.Module()
        self.model.token_rep_layer = nn.Module()
        self.model.token_rep_layer.bert_layer = nn.Module()
        self.model.token_rep_layer.bert_layer.model = enlarged(encoder.eval(), seed=0)
        self.model.rnn = nn.LSTM(24, 12, bidirectional=True, batch_first=True)

    @classmethod
    def from_pretrained(cls, name: str) -> "GLiNER":
        return cls()

    def forward(self, ids, mask):
        encoder = self.model.token_rep_layer.bert_layer.model
        options = {"output_attentions": False, "output_hidden_states": False, "return_dict": True}
        tokens = encoder(ids, attention_mask=mask, **options)[0]
        packed = nn.utils.rnn.pack_padded_sequence(
            tokens, mask.sum(1), batch_first=True, enforce_sorted=False
        )
        return nn.utils.rnn.pad_packed_sequence(self.model.rnn(packed)[0], batch_first=True)[0]

    def predict_entities(self, text, labels):
        ids = torch.tensor([[len(word) for word in text.split()]])
        return self(ids, torch.ones_like(ids)).tolist()


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with small models under the names that the page loads."""
    write(tmp_path / BERT, "ForMaskedLM")
    write(tmp_path / RANKER, "ForSequenceClassification", num_labels=1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "gliner", types.SimpleNamespace(GLiNER=GLiNER))
    return tmp_path


def run(*parts: str, rate: str = "5e-5") -> dict:
    """The names after the blocks that hold one of these parts; `rate` is that of the training."""
    names: dict = {}
    for block in blocks(PAGE, "python"):
        if any(part in block for part in ("import optimize", *parts)):
            exec(block.replace("5e-5", rate), names)
    return names


def test_blocks_are_short():
    assert len(blocks(PAGE, "python")) == 9
    assert max(len(block.splitlines()) for block in blocks(PAGE, "python")) <= 10
    assert len(PAGE.read_text(encoding="utf-8").splitlines()) <= 145


@pytest.fixture
def minilm(place, released_bert):
    """The released model and the model of the page."""
    (place / MINILM).symlink_to(released_bert)
    original = library.SentenceTransformer(MINILM, device="cpu")
    return original, run("model = optimize(SentenceTransformer(")["model"]


def test_sentence_transformer(minilm):
    """Several hundred texts, in the order in which they were."""
    original, fast = minilm
    assert type(fast) is type(original)
    texts = sentences(300)
    np.testing.assert_allclose(fast.encode(texts), original.encode(texts), rtol=0, atol=1e-5)
    options = {"convert_to_tensor": True, "normalize_embeddings": True, "prompt": "a film in: "}
    here, there = (m.encode(texts[:20], **options, batch_size=3) for m in (fast, original))
    torch.testing.assert_close(here, there, rtol=0, atol=1e-5)
    torch.testing.assert_close(here.norm(dim=1), torch.ones(20))
    assert (here - fast.encode(texts[:20], convert_to_tensor=True)).abs().max() > 0.01
    torch.testing.assert_close(
        fast.similarity(here, here), original.similarity(there, there), rtol=0, atol=1e-5
    )
    tokens = [m.encode(texts[:5], output_value="token_embeddings") for m in minilm]
    for ours, theirs in zip(*tokens, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-4)


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_precisions_keep_similarities(minilm, precision):
    original, _ = minilm
    one = sentences(60)[:30]
    two = sentences(60)[30:]
    expected, found = (
        m.similarity_pairwise(m.encode(one), m.encode(two))
        for m in (original, optimize(original, precision))
    )
    assert not torch.equal(found, expected)
    torch.testing.assert_close(found, expected, rtol=0, atol=0.1)


@writes_onnx
def test_engine(place):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    (place / MINILM).symlink_to(place / BERT)
    names = run("from sentence_transformers import SentenceTransformer", 'engine="onnxruntime"')
    expected = library.SentenceTransformer(MINILM, device="cpu").encode(sentences(30))
    found = names["model"].encode(sentences(30))
    cosines = torch.cosine_similarity(torch.tensor(found), torch.tensor(expected))
    assert cosines.min() > 0.99
    assert (place / "minilm-program" / "model.int8.onnx").is_file()


def test_server(place, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", iter(sentences(3)))
    server = runpy.run_path(str(PAGE.parent / "server.py"))
    server["main"](str(place / BERT), "torch", "int8")
    assert "3 texts" in capsys.readouterr().out


def test_smaller_sentence_transformer(place, released_bert):
    (place / MINILM).symlink_to(released_bert)
    smaller = run("smaller = ", "import SentenceTransformer")["smaller"]
    assert any("quantized" in type(m).__module__ for m in smaller.modules())


def test_cross_encoder(place):
    names = run("CrossEncoder(")
    assert len(names["scores"]) == 2
    pairs = [*zip(sentences(80, 20), reversed(sentences(80, 20)), strict=True)]
    original = library.CrossEncoder(RANKER, device="cpu")
    expected = original.predict(pairs, activation_fn=nn.Identity())
    found = names["ranker"].predict(pairs, activation_fn=nn.Identity())
    assert expected.std() > 0.01
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_gliner(place):
    """With texts of several lengths in a batch."""
    fast = run("import GLiNER")["finder"]
    assert type(fast) is GLiNER
    model = GLiNER()
    model.load_state_dict(fast.state_dict())
    mask = (torch.arange(20) < torch.tensor([[20], [3], [11]])).long()
    ids = torch.randint(4, 60, mask.shape) * mask
    torch.testing.assert_close(fast(ids, mask), model(ids, mask), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("task", "head", "batch"),
    [
        ("text-classification", "ForSequenceClassification", 4),
        ("token-classification", "ForTokenClassification", 4),
        # In batches, results hold the vectors at padding, which are 0 here.
        ("feature-extraction", "Model", 1),
    ],
)
def test_pipelines(place, task, head, batch):
    write(place / "model", head)
    original = transformers.pipeline(task, "model", device="cpu")
    texts = sentences(12)
    same(optimize(original)(texts, batch_size=batch), original(texts, batch_size=batch))


def test_pipeline_of_masked_tokens(place):
    names = run("import pipeline")
    original = transformers.pipeline("fill-mask", BERT, device="cpu")
    texts = [f"{text} [MASK] ." for text in sentences(12)]
    same(names["fill"](texts, batch_size=4), original(texts, batch_size=4))
    assert names["best"] == original("The man plays the [MASK].")[0]["token_str"]


def same(here, there):
    """Nested results whose numbers are equal within 1e-5."""
    if isinstance(there, dict | list):
        assert len(here) == len(there)
        for key in there if isinstance(there, dict) else range(len(there)):
            same(here[key], there[key])
    else:
        assert here == (there if isinstance(there, str) else pytest.approx(there, abs=1e-5, rel=0))


def test_trainer(place):
    pytest.importorskip("accelerate", reason="accelerate is not installed (extra hf)")
    # The small model learns in few updates only at a higher rate.
    names = run("AutoModel", rate="3e-2")
    losses = [each["loss"] for each in names["trainer"].state.log_history if "loss" in each]
    assert losses[-1] < 0.5 * losses[0]
    assert type(names["again"]) is transformers.BertForSequenceClassification
    trained = names["classifier"].state_dict()
    for name, value in names["again"].state_dict().items():
        assert torch.equal(value, trained[name])
    batch = names["tokenizer"](sentences(8), padding=True, return_tensors="pt")
    fast = names["trainer"].model.eval()
    expected = names["again"].eval()(**batch).logits
    torch.testing.assert_close(fast(**batch).logits, expected, rtol=0, atol=1e-5)


class Adapter(nn.Module):
    """As LoRA: a frozen layer and a product of two small matrices."""

    def __init__(self, base: nn.Linear):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, 2, bias=False)
        self.up = nn.Linear(2, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


@pytest.mark.parametrize("before", [False, True], ids=["new", "used"])
def test_adapters(place, before):
    """Put into the optimized model, also after it was used, and trained there."""
    write(place / "model", "ForSequenceClassification")
    load = transformers.AutoModelForSequenceClassification.from_pretrained
    theirs = load("model").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained("model")
    batch = tokenizer(sentences(6), padding=True, return_tensors="pt")
    fast = optimize(copy.deepcopy(theirs))
    if before:
        with torch.no_grad():
            unadapted = fast(**batch).logits
    for model in (theirs, fast):
        torch.manual_seed(1)
        for layer in model.bert.encoder.layer:
            layer.attention.self.query = Adapter(layer.attention.self.query)
    with torch.no_grad():
        torch.testing.assert_close(fast(**batch).logits, theirs(**batch).logits, rtol=0, atol=1e-5)
        if before:
            assert (fast(**batch).logits - unadapted).abs().max() > 1e-4
    for model in (theirs, fast):
        model(**batch, labels=torch.arange(6) % 3).loss.backward()
    here, there = (
        [p.grad for name, p in m.named_parameters() if ".up." in name or ".down." in name]
        for m in (fast, theirs)
    )
    for ours, expected in zip(here, there, strict=True):
        assert expected.abs().max() > 0
        torch.testing.assert_close(ours, expected, rtol=1e-3, atol=1e-5)


def test_page_names_what_stays():
    """The warnings of the page are those of `optimize`."""
    with pytest.warns(UserWarning, match="nothing to optimize in Linear"):
        optimize(nn.Linear(2, 2))
    decoder = transformers.BertModel(transformers.BertConfig(num_hidden_layers=1, is_decoder=True))
    with pytest.warns(UserWarning, match="stay as they are: BertModel .it is a decoder"):
        optimize(decoder)
