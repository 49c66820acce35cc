"""Attention on a GPU: every backend with every encoding against `eager` in fp32."""

import copy

import pytest
import torch

from tests import triton_interpreter
from tests.attention.cases import EMBED_DIM, ENCODINGS, build, gradients, normal, padding_mask, run
from tests.cuda.device import DEVICE, PRECISIONS, assert_all_close, autocast, pairs
from tests.tolerances import SLOPE, assert_sampled, assert_slope
from tupe_fairseq.attention import ATTENTION_BACKENDS
from tupe_fairseq.attention.backend import Feature

pytestmark = pytest.mark.gpu
PAIRS = pairs(ENCODINGS)
#: Of backends that take packed tokens.
PACKED = [pair for pair in PAIRS if pair[0] in ("flash", "triton")]
CAUSAL = [pair for pair in PAIRS if Feature.DECODER in ATTENTION_BACKENDS[pair[0]].supports]
every_pair = pytest.mark.parametrize(("backend", "case"), PAIRS)
#: Odd, and more than one tile of any kernel.
LENGTH = 65
DROPOUT = 0.3


@pytest.fixture(autouse=True)
def _bf16_as_on_gpus(request):
    """On a CPU, Triton's interpreter needs a repair."""
    if not triton_interpreter.MISSING:
        request.getfixturevalue("kernels_of_triton")


def prepared(case, dtype=torch.float32, length=LENGTH):
    """Encoding, attention and words on the device, their numbers rounded to the dtype."""
    modules = build(case, length)
    for parameter in (parameter for module in modules for parameter in module.parameters()):
        # With larger ones rounding is amplified, most by the differential equation of FLOATER.
        parameter.data *= 0.1 if case == "floater" else 0.5
    encoding, attention = (module.to(DEVICE, dtype) for module in modules)
    x = normal(2, length, EMBED_DIM, seed=length, dtype=dtype).to(DEVICE)
    return encoding, attention, x


def results(encoding, attention, x, padding, casts=None, **how):
    """Output at words, all gradients; the forward pass is under autocast to the dtype `casts`."""
    x = x.detach().requires_grad_()
    with autocast(casts):
        out = at_words(run(encoding, attention, x, padding, **how), padding)
    return out, gradients(out, x, encoding, attention)


def at_words(out, padding):
    """What is at padding has no meaning."""
    return out if padding is None else out * ~padding[:, :, None]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    ("backend", "case", "kind"),
    [
        *((*pair, kind) for kind in ("full", "padded") for pair in PAIRS),
        *((*pair, "packed") for pair in PACKED),
        *((*pair, "causal") for pair in CAUSAL),
    ],
)
def test_equals_eager_in_fp32(backend, case, kind, precision):
    dtype, casts = PRECISIONS[precision]
    encoding, attention, x = prepared(case, dtype)
    exact = [copy.deepcopy(module).float() for module in (encoding, attention)]
    padding = None
    if kind in ("padded", "packed"):
        padding = padding_mask(LENGTH, 0, LENGTH // 2).to(DEVICE)
    how = {"causal": kind == "causal", "packed": kind == "packed"}
    expected, of_expected = results(*exact, x.float(), padding, backend="eager", **how)
    found, of_found = results(encoding, attention, x, padding, casts, backend=backend, **how)
    assert found.dtype == (casts or dtype)
    assert_all_close(found, expected, of_found, of_expected)


@pytest.mark.parametrize("precision", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("length", [64, LENGTH])
@every_pair
def test_evaluation_equals_eager_in_fp32(backend, case, length, precision):
    """Without gradients torch chooses among more kernels; these read masks in aligned parts."""
    dtype = PRECISIONS[precision][0]
    encoding, attention, x = prepared(case, dtype, length)
    exact = [copy.deepcopy(module).float() for module in (encoding, attention)]
    padding = padding_mask(length, 0, length // 2).to(DEVICE)
    with torch.no_grad():
        expected = run(*exact, x.float(), padding, backend="eager")
        found = run(encoding, attention, x, padding, backend=backend)
    assert_all_close(at_words(found, padding), at_words(expected, padding), {}, {})


@every_pair
def test_dropout_keeps_the_mean(backend, case):
    """The mean output of many rows with dropout is the output without it."""
    encoding, attention, x = prepared(case, length=5)
    expected = run(encoding, attention, x[:1], backend=backend)
    attention.train().dropout = DROPOUT
    torch.manual_seed(1)
    rows = run(encoding, attention, x[:1].expand(1024, -1, -1), backend=backend)
    assert_sampled(rows, expected)


@every_pair
def test_gradients_under_dropout(backend, case):
    """The backward pass drops the weights that the forward pass has dropped."""
    encoding, attention, x = prepared(case, length=5)
    attention.train().dropout = DROPOUT
    weights, direction = (normal(*x.shape, seed=n).to(DEVICE) for n in (5, 6))

    def loss(step):
        torch.manual_seed(1)
        moved = (x + step * direction).requires_grad_()
        total = (run(encoding, attention, moved, backend=backend) * weights).sum()
        return total, moved

    total, moved = loss(0.0)
    (gradient,) = torch.autograd.grad(total, moved)
    assert_slope(lambda step: loss(step)[0].item(), (gradient * direction).sum().item())


@pytest.mark.parametrize(("backend", "case"), PACKED)
def test_dropout_of_packed_tokens(backend, case):
    """In half precision too: the output is linear in the values, so that it gives their slope."""
    encoding, attention, x = prepared(case, torch.bfloat16)
    attention.train().dropout = DROPOUT
    attention.v_proj.bias.data.zero_()
    attention.out_proj.bias.data.zero_()
    padding = padding_mask(LENGTH, 0, LENGTH // 2).to(DEVICE)
    out = run(encoding, attention, x, padding, packed=True, backend=backend).float()
    weight = attention.v_proj.weight
    (gradient,) = torch.autograd.grad(out, weight, out.detach())
    slope = (gradient.float() * weight).sum().item()
    square = out.square().sum().item()
    assert abs(slope - square) <= SLOPE * square


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one GPU")
@pytest.mark.parametrize(("backend", "case"), [("triton", "tupe_r"), ("sdpa", "rope")])
def test_modules_on_another_gpu_than_the_current_one(backend, case):
    """Triton launches its kernels on the current GPU."""
    encoding, attention, x = prepared(case, torch.float16)
    expected = results(encoding, attention, x, None, backend=backend)[0]
    other = [module.to("cuda:1") for module in (encoding, attention)]
    found = results(*other, x.to("cuda:1"), None, backend=backend)[0]
    assert torch.equal(found.cpu(), expected.cpu())
