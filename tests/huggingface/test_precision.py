"""Layers in bf16 and int8, for inference."""

import copy

import pytest
import torch

from tests.huggingface.encoders import batch, build, with_transformers_5
from tupe_fairseq.base.errors import UsageError
from tupe_fairseq.huggingface import optimize

#: Seeds of the parameters: the error of one draw is up to a fifth larger than the mean.
DRAWS = range(4)
MODELS = ("bert", "roberta", "v3", "modernbert", "modernbert_biases", "mpnet")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("precision", "bound"), [("bf16", 0.04), ("int8", 0.08)])
def test_lower_precisions_are_near(name, precision, bound):
    errors = [error_of(name, precision, seed) for seed in DRAWS]
    assert min(errors) > 0
    assert sum(errors) / len(errors) < bound


def error_of(name, precision, seed):
    """The relative error of one model's vectors."""
    model = build(name, seed=seed, num_hidden_layers=1)
    inputs = batch(model)
    with torch.no_grad():
        theirs, ours = (m(**inputs)[0] for m in (model, optimize(model, precision)))
    shown = inputs["attention_mask"].bool()
    return float((ours - theirs)[shown].norm() / theirs[shown].norm())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_lower_precisions_copy_the_layers(name, precision):
    """Outputs stay fp32, and the given model stays as it is."""
    model = build(name, "ForSequenceClassification", num_hidden_layers=1)
    inputs = batch(model)
    state = copy.deepcopy(model.state_dict())
    fast = optimize(model, precision)
    with torch.no_grad():
        assert fast(**inputs).logits.dtype == torch.float32
    with pytest.raises(UsageError, match=f"layers in {precision} are for inference"):
        fast.state_dict()
    with pytest.raises(UsageError, match=f"the model's layers are {precision} already"):
        optimize(fast, "fp32")
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


@with_transformers_5
@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_models_in_bf16_are_converted(precision):
    """As transformers loads models that were saved in bf16."""
    model = build("modernbert", num_hidden_layers=1)
    inputs = batch(model)
    with torch.no_grad():
        theirs = model(**inputs)[0]
        ours = optimize(model.to(torch.bfloat16), precision)(**inputs)[0]
    assert ours.dtype == torch.bfloat16
    shown = inputs["attention_mask"].bool()
    assert (ours - theirs)[shown].norm() / theirs[shown].norm() < 0.08


@pytest.mark.parametrize("reach", [-1, 60])
@pytest.mark.parametrize("name", ["v3", "own_projections"])
@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_positions_beyond_the_longest_are_near(name, precision, reach):
    """The terms that are computed once hold all distances, also those of farther buckets."""
    model = build(name, num_hidden_layers=1, max_relative_positions=reach)
    ids = torch.randint(4, model.config.vocab_size, (2, 70))
    with torch.no_grad():
        theirs, ours = (m(ids)[0] for m in (model, optimize(model, precision)))
    assert (ours - theirs).norm() / theirs.norm() < 0.08
