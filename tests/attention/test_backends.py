"""Backends against each other, and what each promises whatever the encoding."""

import logging

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.attention.cases import (
    BACKENDS,
    EMBED_DIM,
    ENCODINGS,
    NUM_HEADS,
    PAPER,
    attention_of,
    build,
    gradients,
    normal,
    padding_mask,
    run,
    served,
)
from tests.covering import covering
from tests.tolerances import assert_close, assert_gradients_close
from tupe_fairseq.attention import (
    CrossAttention,
    Feature,
    LayerPlan,
    Source,
    choose_backend,
)
from tupe_fairseq.attention.triton import Triton
from tupe_fairseq.position import PositionEncoding, Shape

FAST = [name for name in BACKENDS if name != "eager"]
#: Odd ones, since kernels work in blocks of powers of two; shorter ones are compared with loops.
LENGTHS = (97, 511)


@pytest.mark.parametrize(
    ("pair", "length", "padded", "dtype"),
    covering(served(FAST, PAPER), LENGTHS, (False, True), (torch.float32, torch.bfloat16)),
    ids=str,
)
def test_fast_backends_equal_eager(pair, length, padded, dtype):
    name, case = pair
    encoding, attention = build(case, max(LENGTHS), dtype)
    x = normal(2, length, EMBED_DIM, seed=length, dtype=dtype).requires_grad_()
    padding = padding_mask(length, 0, length // 2) if padded else None
    expected = run(encoding, attention, x, padding, backend="eager")
    actual = run(encoding, attention, x, padding, backend=name)
    assert actual.dtype == dtype
    assert_close(actual, expected)
    assert_gradients_close(
        gradients(actual, x, encoding, attention),
        gradients(expected, x, encoding, attention),
        dtype,
    )


@pytest.mark.parametrize(("name", "case"), served(FAST, ENCODINGS))
def test_fast_backends_equal_eager_under_autocast(name, case):
    """Autocast makes half-precision queries of fp32 words: the bias must follow them."""
    encoding, attention = build(case, 9)
    x = normal(2, 9, EMBED_DIM, seed=0)
    padding = padding_mask(9, 0, 4)
    with torch.autocast("cpu", torch.bfloat16):
        expected = run(encoding, attention, x, padding, backend="eager")
        actual = run(encoding, attention, x, padding, backend=name)
    assert actual.dtype == expected.dtype == torch.bfloat16
    assert_close(actual, expected)


@pytest.mark.parametrize(("name", "case"), served(BACKENDS, ENCODINGS))
def test_fully_padded_sentence_stays_finite(name, case):
    encoding, attention = build(case, 5)
    x = normal(2, 5, EMBED_DIM, seed=0).requires_grad_()
    output = run(encoding, attention, x, padding_mask(5, 5, 0), backend=name)
    assert output.isfinite().all()
    for gradient in gradients(output, x, encoding, attention).values():
        assert gradient.isfinite().all()


@pytest.mark.parametrize("name", BACKENDS)
def test_dropout_acts_on_the_weights_in_training_only(name):
    """Where every weight is dropped, only the bias of the output projection is left."""
    encoding, attention = build("tupe_a", 7)
    x = normal(2, 7, EMBED_DIM, seed=0)
    kept = run(encoding, attention, x, backend=name)
    attention.dropout = 1.0
    dropped = run(encoding, attention.train(), x, backend=name)
    evaluation = run(encoding, attention.eval(), x, backend=name)
    assert_close(dropped, attention.out_proj.bias.expand_as(dropped))
    assert_close(evaluation, kept)


def test_weights_of_cross_attention_come_only_where_asked_for():
    attention = CrossAttention(EMBED_DIM, NUM_HEADS, EMBED_DIM)
    x = normal(2, 3, EMBED_DIM, seed=0)
    source = Source(normal(2, 5, EMBED_DIM, seed=1))
    out, weights = attention(x, source)
    expected, found = attention(x, source, need_weights=True)
    assert weights is None
    assert found.shape == (2, NUM_HEADS, 3, 5)
    assert_close(found.sum(-1), torch.ones(2, NUM_HEADS, 3))
    assert_close(out, expected)


def test_auto_takes_the_first_that_has_all_features():
    tupe_r, tupe_a = (LayerPlan.of(build(name, 5)[0]).needs for name in ("tupe_r", "tupe_a"))
    assert choose_backend("auto", tupe_r).name == "blocked"
    assert choose_backend("auto", tupe_r, "cuda").name == "sdpa"
    assert choose_backend("auto", tupe_a, "cuda").name == "flash"
    assert choose_backend("auto", {Feature.COMPILED, Feature.RELATIVE}).name == "sdpa"
    assert choose_backend("auto", {Feature.COMPILED, Feature.RELATIVE_VALUES}).name == "eager"


def tokens(device="cuda", dtype=torch.float32):
    """What says on which device layers run, without such a device."""
    with FakeTensorMode():
        return torch.empty(1, 1, 1, device=device, dtype=dtype)


def test_auto_on_gpus_depends_on_the_length():
    """A dense bias for few tokens; without one, a kernel without a mask for all."""
    learned, tupe_a, tupe_r = (build(name, 5)[0] for name in ("learned", "tupe_a", "tupe_r"))
    for encoding, length, name in (
        (learned, 16, "flash"),
        (learned, 4096, "flash"),
        (tupe_a, 1023, "sdpa"),
        (tupe_a, 1024, "flash"),
        (tupe_r, 4096, "sdpa"),
    ):
        plan = LayerPlan.of(encoding)
        assert plan.choose("auto", encoding, tokens(), length).name == name
        assert plan.choose("auto", encoding, tokens("cpu"), length).name == "blocked"
    assert LayerPlan.of(tupe_a).choose("flash", tupe_a, tokens(), 16).name == "flash"


@pytest.mark.parametrize("length", [16, 4096])
def test_auto_in_training_in_half_precision_on_gpus(length, monkeypatch):
    """Triton's kernels where positions add to the scores, if they work on the GPU."""
    for reason, expected in ((None, "triton"), ("they do not run here", None)):
        monkeypatch.setattr(Triton, "unavailable", lambda self, device, reason=reason: reason)
        for name in ("tupe_a", "tupe_r", "alibi", "deberta"):
            encoding = build(name, 5)[0]
            plan = LayerPlan.of(encoding, encoding.build_layer_terms())
            half = tokens(dtype=torch.bfloat16)
            usual = plan.choose("auto", encoding, tokens(), length).name
            assert usual != "triton"
            assert plan.choose("auto", encoding, half, length).name == (expected or usual)
            with torch.no_grad():
                assert plan.choose("auto", encoding, half, length).name == usual
            assert plan.choose("auto", encoding, tokens("cpu"), length).name == "blocked"
        for name, expected_name in (("learned", "flash"), ("rope", "flash"), ("shaw", "eager")):
            encoding = build(name, 5)[0]
            plan = LayerPlan.of(encoding, encoding.build_layer_terms())
            assert plan.choose("auto", encoding, half, length).name == expected_name


def test_choice_is_logged_once(caplog):
    class SeenHereOnly(PositionEncoding):
        """No other test has logged a choice for it."""

    encoding = SeenHereOnly(Shape(EMBED_DIM, NUM_HEADS, 7))
    with caplog.at_level(logging.INFO, logger="tupe_fairseq"):
        for _ in range(2):
            run(encoding, attention_of(encoding), normal(1, 7, EMBED_DIM, seed=0))
    assert caplog.messages == ["attention backend blocked (auto) for SeenHereOnly on cpu"]
