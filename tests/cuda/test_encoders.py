"""Whole encoders on a GPU: precision, saved memory, the compiler, waits of the host."""

import warnings

import pytest
import torch

from tests.attention.cases import encoder_of, normal, words
from tests.cuda.device import DEVICE, PRECISIONS, assert_all_close, autocast
from tupe_fairseq.position import POSITION_ENCODINGS

pytestmark = pytest.mark.gpu
every_encoding = pytest.mark.parametrize("name", list(POSITION_ENCODINGS))
LENGTH = 40
WIDTH = 32
on_gpus = pytest.mark.skipif(DEVICE != "cuda", reason="a CPU does not wait for itself")


def encoder(name, **options):
    """Two layers on the device, causal where the encoding asks for it."""
    causal = POSITION_ENCODINGS[name].causal_only
    torch.manual_seed(0)
    return encoder_of(name, LENGTH, WIDTH, 4, causal=causal, **options).to(DEVICE)


def batch(padded=True):
    """Vectors, padding mask and ids of three sequences."""
    x = normal(3, LENGTH, WIDTH, seed=1).to(DEVICE)
    lengths = torch.tensor([LENGTH, LENGTH - 9, 5 if padded else LENGTH])[:, None]
    mask = (torch.arange(LENGTH) >= lengths).to(DEVICE) if padded else None
    return x, mask, words(x)


def step(model, casts=None, seed=1):
    """Output at the tokens and gradients of a training step on a padded batch."""
    x, mask, ids = batch()
    dtype = next(model.parameters()).dtype
    model.zero_grad()
    torch.manual_seed(seed)
    with autocast(casts):
        out = model(x.to(dtype), mask, ids)
    out = out[~mask]
    weights = normal(*out.shape, seed=2).to(DEVICE)
    (out * weights).sum().backward()
    # A parameter of which nothing depends has none.
    return out.detach(), {
        n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None
    }


@every_encoding
@pytest.mark.parametrize("precision", PRECISIONS)
def test_precision(name, precision):
    """A training step against the same model with `eager` in fp32."""
    dtype, casts = PRECISIONS[precision]
    model = encoder(name).to(dtype)
    exact = encoder(name, attention_backend="eager")
    exact.load_state_dict(model.state_dict())
    found, of_found = step(model, casts)
    expected, of_expected = step(exact)
    assert_all_close(found.to(casts or dtype), expected, of_found, of_expected)


@every_encoding
def test_activation_checkpointing(name):
    """With dropout: what is recomputed drops the same."""
    dropouts = {"dropout": 0.1, "attention_dropout": 0.1}
    plain, saving = (encoder(name, checkpoint_activations=each, **dropouts) for each in (0, 1))
    saving.load_state_dict(plain.state_dict())
    found, of_found = step(saving)
    expected, of_expected = step(plain)
    assert_all_close(found, expected, of_found, of_expected)
    assert not torch.equal(found, step(plain, seed=2)[0]), "nothing is dropped"


def waits(model, x, mask, ids):
    """How often the host waits for the device in a training step."""
    model(x, mask, ids).sum().backward()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            model(x, mask, ids).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return [str(each.message) for each in found if "synchroniz" in str(each.message)]


@on_gpus
@every_encoding
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
def test_the_host_waits_once_with_padding_and_never_without(name, padded):
    """The padding mask is read; fire also reads up to which length its scores are tables."""
    assert len(waits(encoder(name), *batch(padded))) <= padded + (name == "fire")


@pytest.mark.parametrize("casts", [None, torch.bfloat16], ids=["float32", "autocast"])
@every_encoding
def test_compiled_layers(name, casts):
    """`--compile-layers`: outputs and gradients of the same model without it."""
    torch._dynamo.reset()
    plain, compiled = (encoder(name, compile_layers=each) for each in (False, True))
    compiled.load_state_dict(plain.state_dict())
    found, of_found = step(compiled, casts)
    expected, of_expected = step(plain, casts)
    assert_all_close(found.to(casts or torch.float32), expected, of_found, of_expected)


@on_gpus
def test_layers_are_compiled_by_default():
    torch._dynamo.reset()
    model = encoder("tupe_r", compile_layers=None)
    step(model, None)
    assert model.layers.compiled
