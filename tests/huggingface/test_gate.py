"""The cosine to the source that `optimize` measures, and its limit."""

import copy
import re

import pytest
import torch
from torch import nn

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from tests.huggingface.encoders import NAMES, build, first_layer  # noqa: E402
from tupe_fairseq.base.errors import UsageError  # noqa: E402
from tupe_fairseq.huggingface import optimize  # noqa: E402

IDS = [[5, 9, 7], [11, 4, 30, 8, 2, 6], [3]]


def cosines(model, fast, rows=IDS):
    """Of the mean vectors, by loops over fp64."""
    found = []
    for row in rows:
        with torch.no_grad():
            features = [m(torch.tensor([row]))[0][0].tolist() for m in (model, fast)]
        a, b = (
            [sum(column) / len(row) for column in zip(*each, strict=True)] for each in features
        )
        dot = sum(x * y for x, y in zip(a, b, strict=True))
        found.append(dot / (sum(x * x for x in a) * sum(y * y for y in b)) ** 0.5)
    return found


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("name", NAMES)
def test_fidelity_is_that_of_mean_features(name, precision):
    model = build(name)
    fast = optimize(model, precision, texts=IDS)
    expected = cosines(model, fast)
    assert fast.fidelity.mean == pytest.approx(sum(expected) / len(IDS), abs=1e-6)
    assert fast.fidelity.least == pytest.approx(min(expected), abs=1e-6)
    assert fast.fidelity.texts == len(IDS)
    assert not hasattr(model, "fidelity")


def test_what_is_measured_by_default():
    model = build("bert")
    assert not hasattr(optimize(model), "fidelity")
    assert optimize(model, least_cosine=0.9).fidelity.least > 0.99999
    fast = optimize(model, "int8")
    assert fast.fidelity.texts == 16
    # Its source is not known any more.
    assert optimize(fast, "int8").fidelity == fast.fidelity
    assert copy.deepcopy(fast).fidelity == fast.fidelity


class Tagger(nn.Module):
    """An encoder with a tokenizer, as SentenceTransformer has."""

    def __init__(self):
        super().__init__()
        self.encoder = build("bert")
        self.tokenizer = lambda texts, **_: {"input_ids": [[*map(ord, each)] for each in texts]}


def test_texts_are_read_by_the_tokenizer(caplog):
    model = Tagger()
    with caplog.at_level("INFO", "tupe_fairseq"):
        fast = optimize(model, "int8", texts=["\5\t\7", "\3"])
    assert fast.fidelity == fast.encoder.fidelity
    assert fast.fidelity == optimize(model.encoder, "int8", texts=[IDS[0], IDS[2]]).fidelity
    (line,) = caplog.messages[:1]
    found = f"BertModel: cosine to the source in int8: {fast.fidelity.mean:.5f} on average of 2 "
    assert line == f"{found}texts, {fast.fidelity.least:.5f} at least"


@pytest.mark.parametrize("precision", ["bf16", "int8"])
@pytest.mark.parametrize("name", NAMES)
def test_a_refusal_leaves_the_model_as_it_was(name, precision):
    model = build(name, "ForSequenceClassification").train()
    calls = []
    handle = first_layer(model).register_forward_hook(lambda *_: calls.append(1))
    first_layer(model).eval()
    before = copy.deepcopy(model)
    with pytest.raises(UsageError) as told:
        optimize(model, precision, inplace=True, texts=IDS, least_cosine=1)
    message = "least_cosine is 1, but .* at least: use another precision, or lower least_cosine."
    assert re.fullmatch(message, str(told.value))
    for here, there in zip(model.modules(), before.modules(), strict=True):
        assert type(here) is type(there)
        assert here.training == there.training
        for table in ("_forward_hooks", "_forward_pre_hooks", "_state_dict_pre_hooks"):
            assert len(vars(here)[table]) == len(vars(there)[table])
    assert model.state_dict().keys() == before.state_dict().keys()
    calls.clear()
    handle.remove()
    model.eval(), before.eval()
    with torch.no_grad():
        assert torch.equal(model(torch.tensor(IDS[:1]))[0], before(torch.tensor(IDS[:1]))[0])
    assert len(calls) == 1


def test_modes_stay():
    model = build("bert").train()
    model.embeddings.eval()
    fast = optimize(model, "int8")
    assert fast.training
    assert not fast.embeddings.training


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"texts": ["a text"]}, "texts has strings, but BertModel has no tokenizer: give lists"),
        ({"texts": "a text"}, "texts is 'a text', but must be a list of texts, or of token ids"),
        ({"texts": []}, r"texts is \[\], but must be a list"),
        ({"texts": [[4], "a"]}, "texts has strings and token ids: give one of them"),
        ({"least_cosine": 98}, "least_cosine is 98, but must be from 0 to 1"),
        ({"least_cosine": float("nan")}, "least_cosine is nan, but must be from 0 to 1"),
    ],
)
def test_bad_arguments(more, message):
    with pytest.raises(UsageError, match=message):
        optimize(build("bert"), "int8", **more)


def test_a_model_with_nan_is_refused():
    model = build("bert", "ForSequenceClassification")
    nn.init.constant_(first_layer(model).weight, float("nan"))
    with pytest.raises(UsageError, match="a cosine to the source in int8: nan"):
        optimize(model, "int8")
