"""Attention in blocks: whatever the blocks, the result is that of attention written out."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.attention.cases import EMBED_DIM, NUM_HEADS, build, gradients, normal, padding_mask, run
from tests.tolerances import assert_close, assert_gradients_close
from tupe_fairseq.attention import ATTENTION_BACKENDS, SharedAttention, blocked, blocks, relative
from tupe_fairseq.attention.layout import Layout
from tupe_fairseq.kernels.random_bits import rounded, words_per_mask
from tupe_fairseq.position import PositionalScore

CASES = ("none", "learned", "rope", "alibi", "t5", "tupe_a", "tupe_a-tie_cls", "tupe_r")
#: Vectors by distance, with clips shorter and longer than the sentences.
RELATIVE = ("shaw", "shaw-wide", "deberta", "deberta-wide", "transformer_xl")
LENGTH = 23


@settings(max_examples=100, deadline=None)
@given(
    heads=st.integers(1, 5),
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=8),
    size=st.sampled_from([1, 7, 64, 1000, 1 << 20]),
    narrow=st.integers(1, 9),
    visible=st.none() | st.tuples(st.integers(-45, 0), st.integers(0, 45)),
)
def test_blocks_cover_every_visible_cell_once(heads, lengths, size, narrow, visible):
    lengths.sort(reverse=True)
    lengths[0] = max(lengths[0], 1)
    longest = lengths[0]
    seen = torch.zeros(heads, len(lengths), longest, longest, dtype=torch.int64)
    taken = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK", size)
        patch.setattr(blocks, "NARROW", narrow)
        found = blocks.split_into_blocks(heads, lengths, visible)
    for same_queries in found:
        first = same_queries[0]
        for block in same_queries:
            assert (block.first, block.first_key) == (first.first, first.first_key)
            assert block.rows <= first.rows
            assert block.num_keys <= first.num_keys
            # Random bits are taken once.
            assert block.first_word == taken
            taken += words_per_mask(block.group.matrices * block.rows, block.num_keys)
            group = block.group.matrices_of(seen)
            group[:, block.first : block.first + block.rows, block.seen] += 1
            assert block.rows == 1 or block.cells <= max(size, 1)
    low, high = visible or (-longest, longest)
    distance = torch.arange(longest) - torch.arange(longest)[:, None]
    for sentence, length in zip(seen.unbind(1), lengths, strict=True):
        counts, of_token = sentence[:, :length, :length], distance[:length, :length]
        assert (counts[:, (low <= of_token) & (of_token <= high)] == 1).all()
        assert sentence.max() <= 1


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("dense", [True, False], ids=["dense", "factored"])
@pytest.mark.parametrize("size", [1, 5 * 3 * LENGTH, 1 << 20])
@pytest.mark.parametrize("case", CASES)
def test_size_of_blocks_does_not_matter(monkeypatch, way, case, size, dense, padded):
    monkeypatch.setattr(blocks, "BLOCK", size)
    if not dense:
        monkeypatch.setattr(blocked, "DENSE", 0)
    encoding, attention = build(case, LENGTH)
    x = normal(3, LENGTH, EMBED_DIM, seed=0).requires_grad_()
    padding = padding_mask(LENGTH, 0, 9, 22) if padded else None
    expected, _ = run(encoding, attention, x, padding, backend="eager")
    actual, _ = run(encoding, attention, x, padding, backend="blocked")
    assert_close(actual, expected)
    assert_gradients_close(
        gradients(actual, x, encoding, attention),
        gradients(expected, x, encoding, attention),
        torch.float32,
    )


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("causal", [False, True], ids=["two-sided", "causal"])
@pytest.mark.parametrize(("size", "tile"), [(1, 1), (100, 5), (1 << 20, 7), (1 << 20, 64)])
@pytest.mark.parametrize("case", RELATIVE)
def test_size_of_tiles_does_not_matter(monkeypatch, way, case, size, tile, causal, padded):
    monkeypatch.setattr(blocks, "BLOCK", size)
    monkeypatch.setattr(relative, "TILE", tile)
    encoding, attention = build(case, LENGTH)
    x = normal(3, LENGTH, EMBED_DIM, seed=0).requires_grad_()
    padding = padding_mask(LENGTH, 0, 2, 22) if padded else None
    how = {"padding": padding, "causal": causal}
    expected, _ = run(encoding, attention, x, backend="eager", **how)
    actual, _ = run(encoding, attention, x, backend="blocked", **how)
    assert_close(actual, expected)
    assert_gradients_close(
        gradients(actual, x, encoding, attention),
        gradients(expected, x, encoding, attention),
        torch.float32,
    )


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("dense", [True, False], ids=["dense", "factored"])
@pytest.mark.parametrize("how", [{"causal": True}, {"window": 3}, {"causal": True, "window": 3}])
@pytest.mark.parametrize("case", ["none", "alibi", "tupe_r", "shaw", "deberta", "transformer_xl"])
def test_blocks_leave_out_hidden_keys(monkeypatch, way, case, how, dense, padded):
    monkeypatch.setattr(blocks, "NARROW", 5)
    monkeypatch.setattr(relative, "TILE", 3)
    if not dense:
        monkeypatch.setattr(blocked, "DENSE", 0)
    encoding, attention = build(case, LENGTH)
    x = normal(3, LENGTH, EMBED_DIM, seed=0).requires_grad_()
    padding = padding_mask(LENGTH, 0, 9, 16) if padded else None
    tokens = 1 if padding is None else (~padding)[:, :, None].float()
    expected = tokens * run(encoding, attention, x, padding, backend="eager", **how)[0]
    actual = tokens * run(encoding, attention, x, padding, backend="blocked", **how)[0]
    assert_close(actual, expected)
    assert_gradients_close(
        gradients(actual, x, encoding, attention),
        gradients(expected, x, encoding, attention),
        torch.float32,
    )


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("case", RELATIVE)
def test_later_queries_have_relative_terms_too(case, dropout):
    """Two queries at positions 5 and 6 of seven, as in incremental decoding."""
    encoding, attention = build(case, 7)
    q, k, v = (normal(2, NUM_HEADS, 7, attention.head_dim, seed=seed) for seed in range(3))
    found = []
    for backend in (blocked.Blocked(), ATTENTION_BACKENDS["eager"]):
        layout = Layout(2, 7, other_queries=True)
        prepared = backend.prepare(None, layout, NUM_HEADS, torch.float32)
        relative = attention.layer_terms.relative(encoding, 7)
        shared = SharedAttention(backend, layout, prepared, encoding, start=5, relative=relative)
        torch.manual_seed(1)
        found.append(backend.attend(q[:, :, 5:], k, v, shared, dropout)[0])
    assert_close(*found)


@pytest.mark.parametrize("case", RELATIVE)
def test_relative_terms_need_no_tensor_of_all_cells(monkeypatch, case):
    """Forward and backward, at a length at which the scores of a head would be 256 KB."""
    monkeypatch.setattr(blocks, "BLOCK", 1 << 12)
    length = 1 << 8
    encoding, attention = build(case, length)
    x = normal(1, length, EMBED_DIM, seed=0).requires_grad_()
    with torch.profiler.profile(profile_memory=True) as profile:
        run(encoding, attention, x, backend="blocked")[0].sum().backward()
    largest = max(event.cpu_memory_usage for event in profile.events())
    assert largest < length * length * 4 / 2


@pytest.mark.parametrize("case", RELATIVE)
def test_dropout_acts_on_relative_terms(monkeypatch, way, case):
    """The mask of the forward pass is that of the backward pass: against finite differences."""
    monkeypatch.setattr(relative, "TILE", 3)
    encoding, attention = build(case, 7, torch.float64)
    attention.dropout = 0.4
    x = normal(2, 7, EMBED_DIM, seed=0, dtype=torch.float64)
    vectors = [p for module in (attention, encoding) for p in module.parameters()]

    def output(*_):
        torch.manual_seed(1)
        return run(encoding, attention.train(), x, backend="blocked")[0]

    torch.manual_seed(1)
    without, _ = run(encoding, attention.eval(), x, backend="blocked")
    assert not torch.allclose(output(), without)
    assert torch.autograd.gradcheck(output, vectors, fast_mode=True)


def vectors(*, requires_grad=False):
    """q, k, and one-hot values, which make the output the weights themselves: B×H×T×T."""
    q, k = (normal(2, 3, LENGTH, LENGTH, seed=seed) for seed in (1, 2))
    v = torch.eye(LENGTH).expand(2, 3, -1, -1).clone()
    return [t.requires_grad_(requires_grad) for t in (q, k, v)]


def attend(q, k, v, bias, p, key=7):
    score = PositionalScore(LENGTH, cells=bias)
    plan = blocked.Blocked().prepare(score, Layout(2, LENGTH), 3, torch.float32)
    _, *without_vectors = relative.relative_inputs(q, None)
    return blocked._Attend.apply(q, k, v, plan, p, key, *without_vectors, plan.score.cells)


@pytest.mark.parametrize("size", [100, 1 << 20])
def test_dropout_of_weights_and_its_gradients(monkeypatch, way, size):
    """Dropped weights are 0, the others scaled; gradients are those of this very mask."""
    monkeypatch.setattr(blocks, "BLOCK", size)
    q, k, v = vectors(requires_grad=True)
    bias, p = normal(3, LENGTH, LENGTH, seed=3).requires_grad_(), 0.25
    found = attend(q, k, v, bias, p)
    kept = found.detach() != 0
    assert abs(kept.float().mean().item() - (1 - p)) < 0.05
    expected = (q @ k.mT + bias).softmax(-1) * kept / (1 - rounded(p)) @ v
    assert_close(found, expected)
    gradient = normal(*found.shape, seed=4)
    inputs = {"q": q, "k": k, "v": v, "bias": bias}
    actual, wanted = (
        dict(zip(inputs, torch.autograd.grad(out, inputs.values(), gradient), strict=True))
        for out in (found, expected)
    )
    assert_gradients_close(actual, wanted, torch.float32)


def test_every_weight_is_dropped_as_often_as_any_other(way):
    """Over many keys: no row, column or head is favoured, and no two cells share their fate."""
    q, k, v = vectors()
    bias, p, draws = torch.zeros(3, LENGTH, LENGTH), 0.5, 400
    dropped = torch.stack([attend(q, k, v, bias, p, key) == 0 for key in range(draws)]).double()
    deviation = (p * (1 - p) / draws) ** 0.5
    assert (dropped.mean(0) - p).abs().max() < 6 * deviation
    flat = dropped.flatten(1)[:, ::17]
    together = torch.corrcoef(flat.t()).fill_diagonal_(0)
    assert together.abs().max() < 6 / draws**0.5


def test_dropout_depends_on_the_seed_alone(way):
    encoding, attention = build("tupe_r", LENGTH)
    attention.dropout = 0.3
    x = normal(2, LENGTH, EMBED_DIM, seed=0)
    outs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outs.append(run(encoding, attention.train(), x, backend="blocked")[0])
    assert torch.equal(outs[0], outs[1])
    assert not torch.equal(outs[0], outs[2])


def test_no_tensor_of_all_cells_where_memory_is_scarce(monkeypatch):
    """Forward and backward of TUPE-R at a length whose dense term alone would be 16 MB."""
    monkeypatch.setattr(blocks, "BLOCK", 1 << 14)
    monkeypatch.setattr(blocked, "DENSE", 0)
    length = 1 << 10
    encoding, attention = build("tupe_r", length)
    x = normal(1, length, EMBED_DIM, seed=0).requires_grad_()
    with torch.profiler.profile(profile_memory=True) as profile:
        run(encoding, attention, x, backend="blocked")[0].sum().backward()
    largest = max(event.cpu_memory_usage for event in profile.events())
    assert largest < length * length
