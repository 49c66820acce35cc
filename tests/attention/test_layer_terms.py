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
    normal,
    run,
)
from tupe_fairseq import build_position_encoding
from tupe_fairseq.position.deberta import log_buckets

#: Encodings with terms of each layer.
LAYERED = [
    case
    for case, (name, options) in ENCODINGS.items()
    if name in ("shaw", "transformer_xl", "deberta") and options.get("deberta_terms") != "none"
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
    """Elements of the largest tensor, forward and backward; B = 2."""
    x = normal(2, length, encoding.shape.embed_dim, seed=1).requires_grad_()
    with Largest() as seen:
        run(encoding, attention, x, backend="eager").sum().backward()
    return seen.elements


@pytest.mark.parametrize("case", LAYERED)
def test_no_tensor_of_cells_and_dimensions_is_made(case):
    """B·H·T·(T+S−1) at most, where a naive term needs T·S·C."""
    assert largest_of(*build(case, 64), 64) <= 2 * NUM_HEADS * 64 * (2 * 64 - 1)


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
    x = normal(2, 9, 12, seed=1)
    first, second = (run(encoding, attention.train(), x) for _ in range(2))
    assert not torch.equal(first, second)
    first, second = (run(encoding, attention.eval(), x) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("default", [torch.float32, torch.bfloat16], ids=str)
def test_deberta_reads_buckets_as_transformers_does(default):
    """At every distance; models are built under the default dtype of their parameters."""
    released = pytest.importorskip("transformers.models.deberta_v2.modeling_deberta_v2")
    for buckets, clip in ((256, 512), (32, 128), (6, 5), (2, 3), (7, 100), (48, 1000)):
        distance = torch.arange(2 * clip)
        expected = released.make_log_bucket_position(distance, buckets, clip)
        torch.set_default_dtype(default)
        try:
            found = log_buckets(distance, buckets, clip)
        finally:
            torch.set_default_dtype(torch.float32)
        assert torch.equal(found, expected.long())
