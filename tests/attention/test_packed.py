"""Backends that take packed tokens: no cells of padding. Results on GPUs: tests/cuda."""

from functools import partial

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils._python_dispatch import TorchDispatchMode

from tests.attention.cases import (
    EMBED_DIM,
    ENCODINGS,
    NUM_HEADS,
    build,
    encoder_of,
    enlarged,
    gradients,
    normal,
    run,
    served,
    words,
)
from tests.tolerances import assert_close, assert_gradients_close
from tupe_fairseq.attention import ATTENTION_BACKENDS, Padding

LENGTHS = (3, 17, 1, 9, 12)
LONGEST = max(LENGTHS)
COUNT = sum(LENGTHS)
MASK = torch.arange(LONGEST) >= torch.tensor(LENGTHS)[:, None]
#: Width of a head in the encoders, and their dropout.
WIDTH = 8
DROPOUT = 0.1


def weights_of(q, k, cumulative, scale):
    """The attention weights of each sequence, H×n×n, and its rows."""
    for first, end in zip(cumulative[:-1].tolist(), cumulative[1:].tolist(), strict=True):
        rows = slice(first, end)
        scores = torch.einsum("ihd,jhd->hij", q[rows], k[rows]) * scale
        yield rows, scores.softmax(-1)


def forward(calls, q, k, v, *others, scale):
    """In place of torch's operator, which has no kernel for CPUs."""
    calls.append((q, k, v, *others, scale))
    out = torch.empty_like(v)
    for rows, weights in weights_of(q, k, others[0], scale):
        out[rows] = torch.einsum("hij,jhd->ihd", weights, v[rows])
    nothing = q.new_empty(0)
    return out, nothing.float(), nothing.long(), nothing.long(), nothing


def backward(gradient, q, k, v, out, lse, cumulative, *others, scale):
    found = [torch.empty_like(x) for x in (q, k, v)]
    for rows, weights in weights_of(q, k, cumulative, scale):
        for_weights = torch.einsum("ihd,jhd->hij", gradient[rows], v[rows])
        mean = (weights * for_weights).sum(-1, keepdim=True)
        for_scores = weights * (for_weights - mean) * scale
        found[0][rows] = torch.einsum("hij,jhd->ihd", for_scores, k[rows])
        found[1][rows] = torch.einsum("hij,ihd->jhd", for_scores, q[rows])
        found[2][rows] = torch.einsum("hij,ihd->jhd", weights, gradient[rows])
    return tuple(found)


@pytest.fixture
def calls(monkeypatch):
    """Calls of FlashAttention on packed tokens, which the CPU then has, in any dtype."""
    made = []
    flash = type(ATTENTION_BACKENDS["flash"])
    monkeypatch.setattr(flash, "takes_packed", lambda self, has_bias, *_: not has_bias)
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("_flash_attention_forward", partial(forward, made), "CPU")
        library.impl("_flash_attention_backward", backward, "CPU")
        yield made


@pytest.mark.parametrize("case", [case for _, case in served(["flash"], ENCODINGS)])
def test_equals_eager(case, calls):
    """Also where an encoding needs the cells of padding, which it then gets."""
    encoding, attention = build(case, LONGEST)
    x = normal(*MASK.shape, EMBED_DIM, seed=0).requires_grad_()

    def results(backend):
        out = run(encoding, attention, x, MASK, packed=True, backend=backend)
        return out, gradients(out, x, encoding, attention)

    found, of_found = results("flash")
    expected, of_expected = results("eager")
    needs_cells = encoding.uses("attention_bias") or attention.layer_terms is not None
    assert len(calls) == (0 if needs_cells or case == "xpos" else 1)
    assert_close(found, expected)
    assert_gradients_close(of_found, of_expected, torch.float32)


def test_each_length_has_its_own_frequencies(calls):
    """Rotations that depend on the length of a text are tables of B texts."""
    options = {"rope_scaling": "dynamic", "rope_original_positions": 5}
    encoders = [
        enlarged(encoder_of("rope", LONGEST, options=options, attention_backend=backend), 1)
        for backend in ("flash", "eager")
    ]
    x = normal(*MASK.shape, EMBED_DIM, seed=0)
    found, expected = (encoder(x, MASK) for encoder in encoders)
    assert not calls
    assert_close(found, expected)


def test_compiled_once_for_all_batches(calls):
    """A graph for the first number of tokens, and one for all others."""
    encoder = enlarged(encoder_of("rope", LONGEST, num_layers=1, attention_backend="flash"), 1)
    x = normal(*MASK.shape, EMBED_DIM, seed=0)
    masks = [torch.roll(MASK, 1, 0)[:n] for n in (5, 4, 3, 2)]
    expected = [encoder(x[: len(mask)], mask) for mask in masks]
    graphs = CompileCounterWithBackend("aot_eager")
    torch._dynamo.reset()
    encoder.layers[0].compile(backend=graphs, fullgraph=True)
    for mask, each in zip(masks, expected, strict=True):
        out = encoder(x[: len(mask)], mask)
        out.sum().backward()
        assert_close(out, each)
    assert graphs.frame_count == 2


class Operators(TorchDispatchMode):
    """Records the operators that are called, with their arguments."""

    def __init__(self):
        super().__init__()
        self.made = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.made.append((func.name(), args, kwargs or {}))
        return func(*args, **(kwargs or {}))

    def named(self, *names):
        return [given for name, *given in self.made if name.partition("::")[2] in names]


@pytest.fixture
def step(monkeypatch):
    """The operators of a training step of an encoder on torch's device "meta"."""
    monkeypatch.setattr(Padding, "read", lambda mask: Padding(mask, LENGTHS))

    def operators(backend, name, dtype=torch.bfloat16, width=WIDTH, **how):
        arguments = {"attention_backend": backend, "attention_dropout": DROPOUT, **how}
        encoder = encoder_of(name, LONGEST, 3 * width, **arguments).to("meta", dtype)
        x = torch.empty(*MASK.shape, 3 * width, device="meta", dtype=dtype)
        with Operators() as found:
            encoder(x, MASK.to("meta"), words(x)).sum().backward()
        return found

    return operators


def gathered(found):
    """How often rows were gathered: `Layout.pack` does it, and the gradient of `unpack`."""
    return len(found.named("index_select"))


@pytest.mark.parametrize("backend", ["flash", "triton"])
@pytest.mark.parametrize("name", ["none", "learned", "rope"])
def test_flash_attention_without_a_bias(backend, name, step):
    """What the operator reads, on packed tokens; nothing is gathered or widened."""
    found = step(backend, name)
    calls = found.named("_flash_attention_forward")
    assert len(calls) == len(found.named("_flash_attention_backward")) == 2
    for (q, k, v, *given), scale in calls:
        assert q.shape == k.shape == v.shape == (COUNT, 3, WIDTH)
        assert given[0] is given[1]
        assert (given[0].shape, given[0].dtype) == ((len(LENGTHS) + 1,), torch.int32)
        assert given[2:] == [LONGEST, LONGEST, DROPOUT, False, False]
        assert scale == {"scale": WIDTH**-0.5}
    assert gathered(found) <= 2


@pytest.mark.parametrize("name", ["tupe_a", "tupe_r"])
def test_the_operator_with_a_bias(name, step):
    found = step("triton", name)
    calls = found.named("attention")
    assert len(calls) == len(found.named("attention_backward")) == 2
    for (q, k, v, *_, is_padded), _ in calls:
        assert q.shape == k.shape == v.shape == (COUNT, 3, WIDTH)
        assert not is_padded
    assert gathered(found) <= 2


@pytest.mark.parametrize("backend", ["flash", "triton", "sdpa"])
def test_any_padding_is_taken_out(backend, step, monkeypatch):
    """Where attention gets packed tokens; for others a twelfth is too little."""
    lengths = (LONGEST,) * 4 + (LONGEST - 7,)
    monkeypatch.setattr(Padding, "read", lambda mask: Padding(mask, lengths))
    found = step(backend, "t5" if backend == "triton" else "learned")
    rows = {given[0].size(0) for given, _ in found.named("native_layer_norm")}
    assert rows == {len(LENGTHS) if backend == "sdpa" else sum(lengths)}


@pytest.mark.parametrize(
    ("dtype", "width"), [(torch.float32, WIDTH), (torch.bfloat16, 200)], ids=str
)
def test_what_flash_attention_does_not_take(dtype, width, step):
    found = step("flash", "learned", dtype, width)
    assert not found.named("_flash_attention_forward")


def test_autocast_decides(monkeypatch):
    asked = []
    flash = type(ATTENTION_BACKENDS["flash"])
    monkeypatch.setattr(flash, "takes_packed", lambda self, *given: asked.append(given))
    encoding, attention = build("learned", LONGEST)
    x = normal(*MASK.shape, EMBED_DIM, seed=0)
    with torch.autocast("cpu", torch.bfloat16):
        run(encoding, attention, x, MASK, packed=True, backend="flash")
    assert asked == [(False, EMBED_DIM // NUM_HEADS, torch.bfloat16, "cpu")]
