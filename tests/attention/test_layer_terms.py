"""What terms with vectors by distance promise beside their equations."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.attention.cases import (
    ENCODINGS,
    NUM_HEADS,
    attention_of,
    build,
    layer_scores,
    layer_values,
    normal,
)
from tupe_fairseq import build_position_encoding

#: Encodings with terms of each layer.
LAYERED = [
    case
    for case, (name, options) in ENCODINGS.items()
    if name in ("shaw", "transformer_xl", "deberta", "relative_bank")
    and options.get("deberta_terms") != "none"
]


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


def largest_of(encoding, attention, length):
    """Elements of the largest tensor made by the terms, forward and backward; B = 2."""
    terms, width = attention.layer_terms, encoding.shape.head_dim
    q, k = (normal(2, NUM_HEADS, length, width, seed=n).requires_grad_() for n in (1, 2))
    with Largest() as seen:
        layer_scores(terms, q, k, encoding, attention=attention).sum().backward()
        if terms.has_values:
            weights = torch.ones(2, NUM_HEADS, length, length, requires_grad=True)
            layer_values(terms, weights, encoding).sum().backward()
    return seen.elements


@pytest.mark.parametrize("case", LAYERED)
def test_no_tensor_of_cells_and_dimensions_is_made(case):
    """B·H·T·(T+S−1) at most, where a naive term needs T·S·C."""
    encoding, attention = build(case, 64)
    assert largest_of(encoding, attention, 64) <= 2 * NUM_HEADS * 64 * (2 * 64 - 1)


def test_no_distance_beyond_the_sentence_is_computed():
    """DeBERTa's table has 1,024 rows; 64 words need the middle 127 of them."""
    encoding = build_position_encoding("deberta", 12, NUM_HEADS, 64, relative_clip=512)
    found = largest_of(encoding, attention_of(encoding), 64)
    assert found <= 2 * NUM_HEADS * 64 * 2 * 64


@pytest.mark.parametrize("emd", [False, True])
def test_deberta_adds_absolute_positions_before_the_lm_head(emd):
    encoding = build_position_encoding("deberta", 12, 3, 9, deberta_emd=emd)
    x = normal(2, 7, 12, seed=0)
    changed = encoding.before_lm_head(x)
    expected = x + encoding.absolute[:7] if emd else x
    assert torch.equal(changed, expected)
    assert torch.equal(encoding.embed(x), x)


def test_deberta_adds_absolute_positions_to_the_input():
    encoding = build_position_encoding("deberta", 12, 3, 9, deberta_absolute=True)
    x = normal(2, 4, 12, seed=0)
    assert torch.equal(encoding.embed(x, start=3), x + encoding.absolute_input[3:7])
    assert torch.equal(encoding.before_lm_head(x), x)


def test_deberta_drops_the_relative_table_in_training_alone():
    """Each layer draws its own mask: two calls differ."""
    encoding = build_position_encoding("deberta", 12, NUM_HEADS, 9, deberta_dropout=0.5)
    attention = attention_of(encoding)
    q, k = (normal(2, NUM_HEADS, 9, 4, seed=n) for n in (1, 2))

    def scores():
        return layer_scores(attention.layer_terms, q, k, encoding)

    assert not torch.equal(scores(), scores())
    attention.eval()
    assert torch.equal(scores(), scores())


def test_deberta_reads_buckets_as_transformers_does():
    """At every distance, for the released numbers and others."""
    released = pytest.importorskip("transformers.models.deberta_v2.modeling_deberta_v2")
    for buckets, clip in ((256, 512), (32, 128), (6, 5), (2, 3), (7, 100), (48, 1000)):
        length = 2 * clip
        encoding = build_position_encoding(
            "deberta", 12, 3, length, relative_clip=clip, deberta_buckets=buckets
        )
        tokens = torch.zeros(1, length, 1)
        theirs = released.build_relative_position(tokens, tokens, buckets, clip)[0]
        rows = torch.arange(2 * buckets)[:, None].expand(-1, 12).float()
        vectors = encoding.by_distance(rows, length, reverse=True)
        d = torch.arange(length)
        ours = vectors.vectors[0, d - d[:, None] - vectors.first, 0]
        assert torch.equal(ours, (theirs + buckets).clamp(0, 2 * buckets - 1).float())
