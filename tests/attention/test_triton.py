"""The backend `triton` with every encoding that it serves, against `eager`."""

import pytest
import torch

from tests.attention.cases import (
    EMBED_DIM,
    ENCODINGS,
    NUM_HEADS,
    build,
    encoder_of,
    enlarged,
    gradients,
    normal,
    padding_mask,
    run,
    served,
    words,
)
from tests.tolerances import assert_close, assert_gradients_close
from tests.triton_interpreter import DEVICE
from tupe_fairseq.attention import (
    ATTENTION_BACKENDS,
    CrossAttention,
    LayerPlan,
    Source,
)
from tupe_fairseq.base.errors import BackendError
from tupe_fairseq.transformer.forward_pass import PLAIN

CASES = [case for _, case in served(["triton"], ENCODINGS)]
LENGTH = 9
#: Padding, how attention is called, and what it requires.
KINDS = {
    "full": (None, {}),
    "padded": (padding_mask(LENGTH, 0, 4), {}),
    "packed": (padding_mask(LENGTH, 0, 4), {"packed": True}),
    "causal": (None, {"causal": True}),
    "window": (padding_mask(LENGTH, 2, 0), {"window": 3}),
}
on_device = pytest.mark.usefixtures("kernels_of_triton")


def results(case, padding, dtype=torch.float32, **how):
    """The output at tokens, and all gradients."""
    encoding, attention = (module.to(DEVICE) for module in build(case, LENGTH, dtype))
    x = normal(2, LENGTH, EMBED_DIM, seed=0, dtype=dtype).to(DEVICE).requires_grad_()
    padding = None if padding is None else padding.to(DEVICE)
    out = run(encoding, attention, x, padding, **how)
    out = out if padding is None else out * ~padding[:, :, None]
    return out, gradients(out, x, encoding, attention)


def assert_as_eager(case, padding, dtype=torch.float32, **how):
    found, of_found = results(case, padding, dtype, backend="triton", **how)
    expected, of_expected = results(case, padding, dtype, backend="eager", **how)
    assert found.dtype == dtype
    assert_close(found, expected)
    assert_gradients_close(of_found, of_expected, dtype)


@on_device
@pytest.mark.parametrize("case", CASES)
def test_every_encoding(case):
    assert_as_eager(case, KINDS["padded"][0])


@on_device
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", ["learned", "tupe_a", "tupe_r", "rope"])
def test_every_kind_of_batch(case, kind, dtype):
    padding, how = KINDS[kind]
    assert_as_eager(case, padding, dtype, **how)


@on_device
def test_padding_anywhere():
    padding = torch.tensor([[1, 0, 0, 1, 0, 0, 0, 1, 1], [0, 0, 1, 1, 1, 0, 0, 0, 0]]).bool()
    assert_as_eager("tupe_r", padding)


@on_device
@pytest.mark.parametrize("name", ["rope", "deberta"])
def test_packed_tokens_in_some_layers(name):
    """Those with a window have a bias, and take packed tokens."""
    options = {"attention_window": 3, "global_every": 2}
    x = normal(2, LENGTH, EMBED_DIM, seed=0).to(DEVICE)
    mask = KINDS["packed"][0].to(DEVICE)
    found, expected = (
        enlarged(encoder_of(name, LENGTH, options=options, attention_backend=backend), 1).to(
            DEVICE
        )(x, mask)
        for backend in ("triton", "eager")
    )
    assert_close(found, expected)


@on_device
def test_dropout_of_layers():
    """Their random numbers are drawn at once: they differ, and recomputed layers see the same."""
    dropouts = {"attention_dropout": 0.3, "attention_backend": "triton"}
    kept, again = (
        encoder_of("tupe_r", LENGTH, checkpoint_activations=each, **dropouts).to(DEVICE)
        for each in (False, True)
    )
    again.load_state_dict(kept.state_dict())
    x = normal(2, LENGTH, EMBED_DIM, seed=0).to(DEVICE)
    first, second = kept.begin(x, None, PLAIN).prepared
    assert (first.random != second.random).double().mean() > 0.9
    of_each = []
    for encoder in (kept, again):
        torch.manual_seed(1)
        out = encoder(x)
        out.square().sum().backward()
        of_each.append([out, *(p.grad for p in encoder.parameters() if p.grad is not None)])
    assert all(map(torch.equal, *of_each))


@on_device
def test_float64_is_computed_by_torch():
    assert_as_eager("tupe_r", None, torch.float64)


@on_device
def test_cross_attention():
    attention = CrossAttention(EMBED_DIM, NUM_HEADS, EMBED_DIM).to(DEVICE)
    x, source = (normal(2, n, EMBED_DIM, seed=n).to(DEVICE) for n in (3, 5))
    mask = padding_mask(5, 0, 2).to(DEVICE)
    found, expected = (attention(x, Source(source, mask, name))[0] for name in ("triton", "eager"))
    assert_close(found, expected)


@on_device
@pytest.mark.parametrize("name", ["tupe_r", "alibi"])
def test_compiled_encoder(name):
    """A training step of a graph without breaks, traced on tensors without data."""
    encoder = encoder_of(name, LENGTH, attention_backend="triton").to(DEVICE)
    x = normal(2, LENGTH, EMBED_DIM, seed=0).to(DEVICE)
    expected = encoder(x, None, words(x))
    torch._dynamo.reset()
    for layer in encoder.layers:
        layer.compile(backend="aot_eager", fullgraph=True)
    out = encoder(x, None, words(x))
    out.sum().backward()
    assert_close(out, expected)


def test_reason_where_it_cannot_run(monkeypatch):
    backend = ATTENTION_BACKENDS["triton"]
    encoding = build("tupe_r", 5)[0]
    monkeypatch.setattr(type(backend), "unavailable", lambda self, device: "there is no GPU")
    with pytest.raises(BackendError, match=r"'triton', but there is no GPU; use auto or eager"):
        LayerPlan.of(encoding).prepare(encoding, normal(1, 5, EMBED_DIM, seed=0), backend="triton")
