"""The terms of rope, Shaw, Transformer-XL, DeBERTa and ALiBi by themselves: cells and facts."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.attention.cases import ENCODINGS, NUM_HEADS, build, layer_scores, layer_values, normal
from tests.reference import alibi
from tests.tolerances import assert_close, assert_not_zero
from tupe_fairseq import build_position_encoding

#: Encodings with terms of each layer.
LAYERED = [
    c for c, (name, _) in ENCODINGS.items() if name in ("shaw", "transformer_xl", "deberta")
]
RELATIVE = [*LAYERED, "rope", "rope-values", "alibi"]
LENGTH = 9
#: Queries T, keys S, position of the first query; S may be smaller than the position.
CELLS = ((1, 9, 0), (1, 9, 8), (4, 9, 5), (3, 7, 2), (2, 4, 5), (9, 1, 0), (9, 9, 0))


def heads(length, width, seed):
    return normal(2, NUM_HEADS, length, width, seed=seed, dtype=torch.float64)


def queries_and_keys(attention, length=LENGTH):
    return heads(length, attention.head_dim, 1), heads(length, attention.head_dim, 2)


def scores_of(encoding, attention, q, k, start=0):
    """The positional part of the scores, with the product of queries and keys for rope alone."""
    if encoding.uses("rotate"):
        # As in incremental decoding: the keys were rotated before, at their own positions.
        q, k = encoding.rotate(q, q, q, start)[0], encoding.rotate(k, k, k)[1]
        return q @ k.transpose(-2, -1)
    if attention.layer_terms is None:
        return encoding.attention_bias(q.size(2), k.size(2), start).dense()
    return layer_scores(attention.layer_terms, q, k, encoding, start)


@pytest.mark.parametrize(("queries", "keys", "start"), CELLS)
@pytest.mark.parametrize("case", RELATIVE)
def test_incremental_rows_are_rows_of_the_whole_score(case, queries, keys, start):
    encoding, attention = build(case, LENGTH, torch.float64)
    q, k = queries_and_keys(attention)
    whole = scores_of(encoding, attention, q, k)
    stop = start + queries
    rows = scores_of(encoding, attention, q[:, :, start:stop], k[:, :, :keys], start)
    assert_close(rows, whole[..., start:stop, :keys])


@pytest.mark.parametrize(("queries", "keys", "start"), CELLS)
@pytest.mark.parametrize("case", [c for c in LAYERED if c.startswith("shaw")])
def test_incremental_values_are_rows_of_the_whole(case, queries, keys, start):
    encoding, attention = build(case, LENGTH, torch.float64)
    weights = heads(LENGTH, LENGTH, 1)
    weights[..., keys:] = 0
    whole = layer_values(attention.layer_terms, weights, encoding)
    stop = start + queries
    rows = layer_values(attention.layer_terms, weights[:, :, start:stop, :keys], encoding, start)
    assert_close(rows, whole[:, :, start:stop])


@pytest.mark.parametrize("case", RELATIVE)
def test_scores_depend_on_the_distance_alone(case):
    """With the same query and the same key everywhere, diagonals are constant; and they differ."""
    encoding, attention = build(case, LENGTH, torch.float64)
    q, k = (x[:, :, :1].expand(-1, -1, LENGTH, -1) for x in queries_and_keys(attention))
    scores = scores_of(encoding, attention, q, k)
    assert_close(scores[..., 1:, 1:], scores[..., :-1, :-1])
    assert_not_zero(scores[..., 0, 1] - scores[..., 0, 0])
    if case != "alibi":  # the only symmetric one
        assert_not_zero(scores[..., 0, 1] - scores[..., 1, 0])


@pytest.mark.parametrize(("case", "clip"), [("shaw", 2), ("shaw-narrow", 1), ("deberta", 3)])
def test_distances_beyond_the_clip_are_one(case, clip):
    encoding, attention = build(case, LENGTH, torch.float64)
    q, k = (x[:, :, :1].expand(-1, -1, LENGTH, -1) for x in queries_and_keys(attention))
    scores = scores_of(encoding, attention, q, k)
    left, right = scores[..., :, 0], scores[..., 0, :]  # by i, at j = 0, and by j, at i = 0
    for far in (left[..., clip:], right[..., clip:]):
        assert_close(far, far[..., :1].expand_as(far))
    for near in (left, right):
        assert_not_zero(near[..., clip] - near[..., clip - 1])


@pytest.mark.parametrize("num_heads", [1, 2, 3, 4, 8, 12])
def test_alibi_equals_the_loops(num_heads):
    """Also where heads are no power of two, for which the authors' code interpolates."""
    encoding = build_position_encoding("alibi", 12 * num_heads, num_heads, LENGTH)
    for queries, keys, start in CELLS:
        cells = alibi.positional_score({}, num_heads, queries, keys, start)
        found = encoding.attention_bias(queries, keys, start).dense()
        assert_close(found, torch.tensor(cells))


def test_alibi_of_eight_heads_has_the_slopes_of_the_paper():
    """1/2, 1/4, ..., 1/256."""
    score = build_position_encoding("alibi", 64, 8, 7).attention_bias(7, 7).dense()
    for head, slope in enumerate(2**-n for n in range(1, 9)):
        assert score[head, 0, :3].tolist() == [0, -slope, -2 * slope]


@pytest.mark.parametrize("num_heads", [1, 2, 3, 6, 8, 12, 20])
def test_official_slopes_are_those_of_bloom_and_mpt(num_heads):
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    mpt = pytest.importorskip("transformers.models.mpt.modeling_mpt")
    encoding = build_position_encoding(
        "alibi", 12 * num_heads, num_heads, 5, alibi_slopes="official"
    )
    found = encoding.attention_bias(5, 5).dense()
    # −m·(4 − j) and m·j: the same but for a constant of each row
    from_mpt = mpt.build_mpt_alibi_tensor(num_heads, 5)[:, 0]
    from_bloom = bloom.build_alibi_tensor(torch.ones(1, 5), num_heads, torch.float32)[:, 0]
    assert_close(found[:, 4], from_mpt)
    assert_close(found[:, 4] - found[:, 4, :1], from_bloom)


@pytest.mark.parametrize("slopes", ["geometric", "official"])
def test_alibi_tells_the_sides_apart(slopes):
    """By hand: −m·|i − j|, and −m·(|i − j| − ½) on the right."""
    options = {"alibi_slopes": slopes, "alibi_sides": True}
    encoding = build_position_encoding("alibi", 36, 3, 4, **options)
    found = encoding.attention_bias(4, 4).dense()
    # s(2) = 1/16, 1/256 and the first of s(4) = 1/4, 1/16, ...
    exact = {
        "geometric": (2 ** (-8 / 3), 2 ** (-16 / 3), 2**-8),
        "official": (1 / 16, 1 / 256, 1 / 4),
    }
    for head, m in enumerate(exact[slopes]):
        row = [-2 * m, -1 * m, 0, -0.5 * m]
        assert_close(found[head, 2], torch.tensor(row))


def test_rope_turns_values_only_when_asked():
    for case, turned in (("rope", False), ("rope-values", True)):
        encoding, attention = build(case, LENGTH, torch.float64)
        q, k = queries_and_keys(attention)
        new_q, new_k, new_v = encoding.rotate(q, k, k)
        assert (new_v is k) != turned
        for old, new in ((q, new_q), (k, new_k)):
            assert_close(new.norm(dim=-1), old.norm(dim=-1))
            assert_close(new[:, :, 0], old[:, :, 0])
            assert_not_zero(new[:, :, 1:] - old[:, :, 1:])
        if turned:
            assert_close(new_v, new_k)


@pytest.mark.parametrize("emd", [False, True])
def test_deberta_adds_absolute_positions_before_the_lm_head(emd):
    encoding = build_position_encoding("deberta", 12, 3, LENGTH, deberta_emd=emd)
    x = normal(2, 7, 12, seed=0)
    changed = encoding.before_lm_head(x)
    expected = x + encoding.absolute[:7] if emd else x
    assert torch.equal(changed, expected)
    assert torch.equal(encoding.embed(x), x)


class Largest(TorchDispatchMode):
    """Notes the largest storage that any operation returns, in elements."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                size = tensor.untyped_storage().nbytes() // tensor.itemsize
                self.elements = max(self.elements, size)
        return out


def largest_of(encoding, terms, length):
    """Elements of the largest tensor made by the terms, forward and backward; B = 2."""
    q, k = (heads(length, encoding.shape.head_dim, n).float().requires_grad_() for n in (1, 2))
    with Largest() as seen:
        layer_scores(terms, q, k, encoding).sum().backward()
        if terms.has_values:
            weights = torch.ones(2, NUM_HEADS, length, length, requires_grad=True)
            layer_values(terms, weights, encoding).sum().backward()
    return seen.elements


@pytest.mark.parametrize("case", LAYERED)
def test_no_tensor_of_cells_and_dimensions_is_made(case):
    """B·H·T·(T+S−1) at most, where a naive term needs T·S·C."""
    encoding, attention = build(case, 64)
    assert largest_of(encoding, attention.layer_terms, 64) <= 2 * NUM_HEADS * 64 * (2 * 64 - 1)


def test_no_distance_beyond_the_sentence_is_computed():
    """DeBERTa's table has 1,024 rows; 64 words need the middle 127 of them."""
    encoding = build_position_encoding("deberta", 12, NUM_HEADS, 64, relative_clip=512)
    found = largest_of(encoding, encoding.build_layer_terms(), 64)
    assert found <= 2 * NUM_HEADS * 64 * 2 * 64
