"""Arguments, copies and other uses of optimized encoders."""

import copy
import inspect
import pickle

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from tests.huggingface.encoders import (  # noqa: E402
    LENGTHS,
    NAMES,
    RECOMPUTED,
    batch,
    build,
    is_optimized,
    same_at_tokens,
    with_transformers_5,
)
from tupe_fairseq.huggingface import optimize  # noqa: E402

every_name = pytest.mark.parametrize("name", NAMES)


@with_transformers_5
@every_name
def test_keywords_that_transformers_ignores(name):
    """Losses of sentence-transformers hand on what they have: padding is still taken out."""
    model = build(name)
    fast = optimize(model)
    inputs = batch(model)
    more = {} if name == "v3" else {"shift_labels": inputs["input_ids"]}
    out = fast(**inputs, **more, token_embeddings=torch.ones(1))[0]
    torch.testing.assert_close(out, fast(**inputs)[0])
    assert not any(out[row, length:].any() for row, length in enumerate(LENGTHS))


@every_name
def test_arguments_by_position(name):
    model = build(name)
    given = tuple(batch(model).values())
    shown = given[1].bool()
    torch.testing.assert_close(optimize(model)(*given)[0][shown], model(*given)[0][shown])


@every_name
def test_positions_of_the_caller(name):
    model = build(name)
    positions = torch.arange(max(LENGTHS)).flip(0)[None]
    same_at_tokens(optimize(model), model, position_ids=positions)


@every_name
@pytest.mark.parametrize("states", [[0, 2], -1, True])
def test_hidden_states_are_selected(name, states):
    model = build(name)
    inputs = batch(model)
    shown = inputs["attention_mask"].bool()
    theirs, ours = (m(**inputs, output_hidden_states=states) for m in (model, optimize(model)))
    for here, there in zip(ours.hidden_states, theirs.hidden_states, strict=True):
        assert (here is None) == (there is None)
        if here is not None:
            torch.testing.assert_close(here[shown], there[shown], atol=1e-4, rtol=1e-4)


@every_name
def test_another_implementation_later(name):
    """As for attention weights, which transformers' own code returns."""
    model = build(name)
    fast = optimize(model)
    inputs = batch(model)
    for each in (model, fast):
        each.set_attn_implementation("eager")
    theirs, ours = (m(**inputs, output_attentions=True).attentions for m in (model, fast))
    for here, there in zip(ours, theirs, strict=True):
        torch.testing.assert_close(here, there)


def test_too_many_tokens_are_refused_by_transformers():
    model = build("bert")
    ids = torch.ones(1, model.config.max_position_embeddings + 1, dtype=torch.int64)
    errors = []
    for each in (model, optimize(model)):
        with pytest.raises((RuntimeError, IndexError)) as error:
            each(ids)
        errors.append(str(error.value))
    assert errors[0] == errors[1]


@every_name
@pytest.mark.parametrize("gradients", [False, True])
def test_autocast(name, gradients):
    model = build(name)
    inputs = batch(model)
    shown = inputs["attention_mask"].bool()
    with torch.set_grad_enabled(gradients), torch.autocast("cpu", torch.bfloat16):
        theirs, ours = (m(**inputs)[0] for m in (model, optimize(model)))
    assert ours.dtype == theirs.dtype
    assert (ours - theirs)[shown].norm() / theirs[shown].norm() < 0.05


@with_transformers_5
@pytest.mark.parametrize("name", ["bert", "mpnet"])
def test_masks_whose_values_are_added(name):
    """As transformers' own attention, "eager", adds those of the caller: True is 1."""
    model = build(name)
    model.set_attn_implementation("eager")
    ids, mask = batch(model).values()
    more = {"attention_mask": mask[:, None, None].bool()}
    torch.testing.assert_close(optimize(model)(ids, **more)[0], model(ids, **more)[0])


@every_name
def test_masks_of_one_row(name):
    model = build(name)
    mask = torch.ones(1, max(LENGTHS), dtype=torch.int64)
    ids = batch(model)["input_ids"][:1]
    mask[:, -3:] = 0
    theirs, ours = (m(ids, attention_mask=mask)[0] for m in (model, optimize(model)))
    torch.testing.assert_close(ours[:, :-3], theirs[:, :-3], atol=1e-5, rtol=0)


@every_name
def test_signature_is_that_of_the_class(name):
    model = build(name)
    assert inspect.signature(optimize(model).forward) == inspect.signature(model.forward)


@every_name
@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_copies_and_pickles(name, precision):
    fast = optimize(build(name, num_hidden_layers=1), precision)
    inputs = batch(fast)
    with torch.no_grad():
        expected = fast(**inputs)[0]
        for each in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
            assert is_optimized(each)
            torch.testing.assert_close(each(**inputs)[0], expected)


# transformers' DeBERTa reads a weight that has been offloaded.
@pytest.mark.parametrize("name", [name for name in NAMES if name != "v3"])
def test_weights_that_accelerate_offloads(name):
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    model = build(name)
    fast = optimize(copy.deepcopy(model))
    accelerate.cpu_offload(fast, execution_device="cpu")
    with torch.no_grad():
        same_at_tokens(fast, model)


# In transformers' DeBERTa, layers share a graph, which reentrant checkpoints free.
@pytest.mark.parametrize(
    ("name", "reentrant"),
    [(name, old) for name in RECOMPUTED for old in (False, True) if not (old and name == "v3")],
)
def test_layers_that_are_recomputed(name, reentrant):
    model = build(name).train()
    options = {"use_reentrant": reentrant}
    fast = optimize(copy.deepcopy(model))
    inputs = batch(model)
    gradients = []
    shown = inputs["attention_mask"].bool()
    fast.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
    for each in (fast, model):
        each(**inputs)[0][shown].square().mean().backward()
        gradients.append([p.grad for p in each.parameters() if p.grad is not None])
    for here, there in zip(*gradients, strict=True):
        torch.testing.assert_close(here, there, atol=1e-4, rtol=1e-4)
