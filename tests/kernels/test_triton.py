"""The kernels in Triton against float64, and the statistics of their dropout."""

import functools

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from tests.tolerances import error, largest
from tests.triton_interpreter import DEVICE
from tupe_fairseq.base.errors import BackendError
from tupe_fairseq.kernels import triton_attention
from tupe_fairseq.kernels.triton_attention import WIDEST, attention

pytestmark = pytest.mark.usefixtures("kernels_of_triton")
#: Rows before each sequence that are of none.
PADDING = 2
HIDDEN = -1e4
#: Of fp32.
EXACT = 1e-6


def packed(lengths, padding=PADDING):
    """Rows of the first token and after the last token of each sequence."""
    count = torch.tensor(lengths, device=DEVICE)
    ends = count.cumsum(0) + padding * torch.arange(1, len(lengths) + 1).to(count)
    return ends - count, ends


def tensors(lengths, heads, width, dtype, padding=PADDING):
    """q, k and v, N×H×D, and a bias, H×T×T; all require gradients."""
    torch.manual_seed(0)
    rows = sum(lengths) + padding * len(lengths)
    longest = max(lengths)
    # Rows of q, k and v alternate, as after one projection.
    q, k, v = torch.randn(rows, 3, heads, width, device=DEVICE).to(dtype).unbind(1)
    bias = torch.randn(heads, longest, longest, device=DEVICE).to(dtype)
    return [x.detach().requires_grad_() for x in (q, k, v, bias)]


def run(q, k, v, bias, lengths, padding=PADDING, seed=3, **how):
    if seed is not None:
        torch.manual_seed(seed)
    where = packed(lengths, padding)
    return attention(q, k, v, *where, max(lengths), bias, padded=padding > 0, **how)


@functools.cache
def mask(lengths, heads, p, padding=PADDING, seed=3):
    """What dropout keeps, H×T×T for each sequence: with equal scores, and one-hot values."""
    rows = sum(lengths) + padding * len(lengths)
    q = torch.zeros(rows, heads, WIDEST, device=DEVICE)
    v = torch.zeros_like(q)
    for start, length in zip(packed(lengths, padding)[0], lengths, strict=True):
        v[start : start + length] = torch.eye(WIDEST, device=DEVICE)[:length, None]
    out = run(q, q, v, None, lengths, padding, seed, dropout=p)
    return [
        (out[start : start + length, :, :length] > 0).transpose(0, 1)
        for start, length in zip(packed(lengths, padding)[0], lengths, strict=True)
    ]


def expected(q, k, v, bias, lengths, padding=PADDING, hidden=None, scale=1.0, dropout=0.0):
    """Sequence by sequence, in the dtype of q."""
    out = torch.zeros_like(v)
    kept = mask(lengths, q.size(1), dropout, padding) if dropout else [1] * len(lengths)
    for start, length, keep in zip(packed(lengths, padding)[0], lengths, kept, strict=True):
        rows = torch.arange(start, start + length, device=DEVICE)
        of_q, of_k, of_v = (x[rows].transpose(0, 1) for x in (q, k, v))
        scores = of_q @ of_k.mT * scale
        if bias is not None:
            scores = scores + bias[:, :length, :length]
        if hidden is not None:
            scores = scores + hidden[rows]
        weights = scores.softmax(-1) * keep / (1 - dropout)
        out = out.index_add(0, rows, (weights @ of_v).transpose(0, 1))
    return out


def results(function, inputs, *given, **how):
    """The output, and the gradients of those inputs that are not None."""
    out = function(*inputs, *given, **how)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    leaves = [x for x in inputs if x is not None]
    return [out, *torch.autograd.grad(out, leaves, weights.to(out))]


def errors(found, exact):
    """The largest error of each, in units of its largest entry, which counts as at least 1."""
    assert all(x.isfinite().all() for x in found)
    pairs = zip(found, exact, strict=True)
    return [error(a, b, largest(b)) for a, b in pairs]


def in_float64(inputs):
    return [x if x is None else x.detach().double().requires_grad_() for x in inputs]


SHAPES = {
    "ragged": ((61, 97, 1, 64), 2, 16),
    "one": ((1,), 1, 32),
    "wide": ((17, 40), 1, 128),
    "odd_width": ((48, 5), 2, 20),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("p", [0.0, 0.1])
@pytest.mark.parametrize(("lengths", "heads", "width"), SHAPES.values(), ids=SHAPES)
def test_equals_float64(lengths, heads, width, p, dtype):
    """In half precision, to twice what torch is off by; to an ulp where that is nothing."""
    inputs = tensors(lengths, heads, width, dtype)
    how = {"scale": width**-0.5, "dropout": p}
    exact = results(expected, in_float64(inputs), lengths, **how)
    found = errors(results(run, inputs, lengths, **how), exact)
    allowed = [EXACT] * len(found)
    if dtype != torch.float32:
        of_torch = errors(results(expected, inputs, lengths, **how), exact)
        allowed = [2 * x if x > EXACT else torch.finfo(dtype).eps for x in of_torch]
    assert all(a <= b for a, b in zip(found, allowed, strict=True)), (found, allowed)


@pytest.mark.parametrize("kind", ["no_bias", "hidden", "long"])
def test_variants_equal_float64(kind):
    lengths = (61, 32)
    padding = 0 if kind == "no_bias" else PADDING
    how = {"scale": 0.25}
    if kind == "long":
        lengths = (513,)
    inputs = tensors(lengths, 1, 16, torch.float32, padding)
    if kind == "no_bias":
        inputs[-1] = None
    if kind == "hidden":
        how["hidden"] = HIDDEN * (torch.arange(len(inputs[0]), device=DEVICE) % 3 == 0).float()
    exact = results(expected, in_float64(inputs), lengths, padding, **how)
    found = results(run, inputs, lengths, padding, **how)
    assert max(errors(found, exact)) <= EXACT


def test_a_bias_that_is_not_trained():
    lengths = (33, 9)
    *inputs, bias = tensors(lengths, 2, 16, torch.float32)
    frozen = functools.partial(run, bias=bias.detach(), lengths=lengths)
    whole = results(run, [*inputs, bias], lengths)[:-1]
    assert all(map(torch.equal, results(frozen, inputs), whole))


def test_rows_of_no_sequence():
    """Whatever they hold: zeros come out, and they have no gradient."""
    inputs = tensors((33, 9), 2, 16, torch.float32)
    rows = torch.tensor([0, 1, 35, 36], device=DEVICE)
    with torch.no_grad():
        for x in inputs[:3]:
            x[rows] = float("nan")
    out, *gradients, _ = results(run, inputs, (33, 9))
    assert not out[rows].any()
    assert not any(gradient[rows].any() for gradient in gradients)
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_heads_go_in_chunks(monkeypatch):
    from tupe_fairseq.kernels import triton_launch

    inputs = tensors((33, 9), 3, 16, torch.float32)
    whole = results(run, inputs, (33, 9), dropout=0.1)
    monkeypatch.setattr(triton_launch, "STORED", 2 * 2 * 128 * 128 * 4)
    assert all(map(torch.equal, results(run, inputs, (33, 9), dropout=0.1), whole))


def test_memory_of_long_texts():
    """8 texts of 4,096 tokens and 12 heads: at most 1 GiB beside inputs and outputs."""
    from tupe_fairseq.kernels.triton_launch import Launch

    batch = 8
    length = 4096
    heads = 12
    half = {"dtype": torch.bfloat16, "device": "meta"}
    q = torch.empty(batch * length, heads, 64, **half)
    by_keys = triton_attention.transposed(torch.empty(heads, length, length, **half))
    launch = Launch(q, q, q, by_keys, *(None,) * 6, length, 1.0, 0.1)
    chunks = [ds for _, ds in launch.chunks()]
    assert sum(len(ds) for ds in chunks) == heads
    assert (chunks[0].numel() + by_keys.numel()) * by_keys.itemsize <= 1 << 30


class TestDropout:
    """12 matrices of 128×128 cells: what is kept, in units of its standard deviation."""

    SEQUENCES = 4
    HEADS = 3
    LENGTH = 128
    #: Of a correlation of two rows, two columns or two heads, in standard deviations.
    FARTHEST = 8

    @pytest.fixture(params=[0.1, 0.5, 0.9])
    def kept(self, request):
        """B·H×T×T, of mean 0 and variance 1."""
        p = request.param
        cells = torch.cat(mask((self.LENGTH,) * self.SEQUENCES, self.HEADS, p, 0)).double().cpu()
        return (cells - (1 - p)) / (p * (1 - p)) ** 0.5

    def assert_standard(self, values):
        """Means of as many independent cells as a row has, times the root of their number."""
        assert 0.9 <= values.std() <= 1.1
        assert values.abs().max() <= self.FARTHEST

    def test_share(self, kept):
        assert abs(kept.mean()) * kept.numel() ** 0.5 <= 4

    def test_share_in_rows_and_columns(self, kept):
        for dimension in (1, 2):
            self.assert_standard(kept.mean(dimension) * self.LENGTH**0.5)

    def test_rows_and_columns_are_independent(self, kept):
        others = ~torch.eye(self.LENGTH, dtype=torch.bool)
        for cells in (kept, kept.mT):
            self.assert_standard((cells @ cells.mT)[:, others] / self.LENGTH**0.5)

    def test_heads_and_sequences_are_independent(self, kept):
        """Row by row, and shifted: no matrix repeats another one."""
        others = ~torch.eye(len(kept), dtype=torch.bool)
        for shift in (0, 1):
            moved = kept.roll((shift, shift), (1, 2))
            products = torch.einsum("aij,bij->abi", kept, moved)[others]
            self.assert_standard(products / self.LENGTH**0.5)

    def test_rectangles(self, kept):
        """Four cells where two neighbouring rows and two neighbouring columns meet."""
        products = kept[:, 1:] * kept[:, :-1]
        products = products[..., 1:] * products[..., :-1]
        assert abs(products.mean()) * products.numel() ** 0.5 <= 4

    def test_seeds(self):
        """torch's seed decides; another seed gives an independent mask."""
        shape = (self.LENGTH, self.LENGTH), 1, 0.5, 0
        first, again, other = (torch.cat(mask.__wrapped__(*shape, seed)) for seed in (1, 1, 2))
        assert torch.equal(first, again)
        same = (first == other).double().mean() - 0.5
        assert abs(same) * 2 * first.numel() ** 0.5 <= 4


def test_all_may_be_dropped():
    assert not run(*tensors((5,), 1, 16, torch.float32), (5,), dropout=1.0).any()


def test_second_derivatives_are_refused():
    inputs = tensors((5,), 1, 16, torch.float32)
    (gradient,) = torch.autograd.grad(run(*inputs, (5,)).sum(), inputs[0], create_graph=True)
    with pytest.raises(BackendError, match="no second derivatives"):
        gradient.sum().backward()


def test_autocast():
    inputs = tensors((33, 9), 2, 16, torch.float32)
    with torch.autocast(DEVICE, torch.bfloat16):
        out = run(*inputs, (33, 9))
    rounded = [x.detach().bfloat16() for x in inputs[:3]]
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, run(*rounded, inputs[3], (33, 9)))


def test_activation_checkpointing():
    """What is recomputed drops the same."""
    inputs = tensors((33, 9), 2, 16, torch.float32)

    def recomputed(*inputs, **how):
        torch.manual_seed(3)
        return checkpoint(run, *inputs, (33, 9), seed=None, use_reentrant=False, **how)

    whole = results(run, inputs, (33, 9), dropout=0.3)
    assert all(map(torch.equal, results(recomputed, inputs, dropout=0.3), whole))


def test_registration():
    """torch's own checks, and a whole graph with gradients."""
    operator = torch.ops.tupe_fairseq.attention.default
    inputs = tensors((17, 9), 1, 16, torch.half)
    random = torch.ones(2, 1, len(inputs[0]), dtype=torch.int32, device=DEVICE)
    where = None, None, *packed((17, 9)), 17, 1.0, 0.1, True
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(operator, (*inputs, None, None, random, *where), test_utils=checks)
    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    found = results(compiled, inputs, (17, 9), seed=None)
    assert all(map(torch.equal, found, results(run, inputs, (17, 9))))
