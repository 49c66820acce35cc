"""Layers in bf16 and int8, for inference."""

import copy

import pytest
import torch

from tests.huggingface.encoders import NAMES, batch, build, with_transformers_5
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


@with_transformers_5
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_what_transformers_collects(name, precision):
    """Hidden states and weights have the dtype of outputs, also with another attention later."""
    model = build(name, num_hidden_layers=1)
    fast = optimize(model, precision)
    inputs = batch(model, "none")
    more = {"output_hidden_states": True, "output_attentions": True}
    for each in (model, fast):
        each.set_attn_implementation("eager")
    with torch.no_grad():
        theirs, ours = (m(**inputs, **more) for m in (model, fast))
    for part in ("hidden_states", "attentions"):
        for here, there in zip(ours[part], theirs[part], strict=True):
            assert here.dtype == there.dtype
            assert (here - there).norm() / there.norm() < 0.08


@with_transformers_5
@pytest.mark.parametrize("name", ["bert", "modernbert", "mpnet"])
@pytest.mark.parametrize(("dtype", "precision"), [("float32", "bf16"), ("bfloat16", "int8")])
def test_masks_that_are_added(name, precision, dtype):
    """Of the caller, in the dtype of outputs."""
    model = build(name, num_hidden_layers=1).to(getattr(torch, dtype))
    ids = torch.randint(4, 60, (2, 7))
    mask = torch.zeros(2, 1, 7, 7, dtype=model.dtype)
    mask[0, :, 2, 3:] = torch.finfo(model.dtype).min
    with torch.no_grad():
        theirs, ours = (
            m(ids, attention_mask=mask)[0] for m in (model, optimize(model, precision))
        )
    assert ours.dtype == theirs.dtype
    assert (ours - theirs).norm() / theirs.norm() < 0.08


@pytest.mark.parametrize("name", [*NAMES, "roberta"])
@pytest.mark.parametrize(("precision", "bound"), [("fp32", 1e-5), ("bf16", 0.1), ("int8", 0.15)])
def test_heads_that_read_padding_on_the_left(name, precision, bound):
    """They read the first vector of each text."""
    model = build(name, "ForSequenceClassification", num_hidden_layers=1)
    inputs = batch(model, "left")
    with torch.no_grad():
        theirs, ours = (m(**inputs).logits for m in (model, optimize(model, precision)))
    assert (ours - theirs).norm() / theirs.norm() < bound
