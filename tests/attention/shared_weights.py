"""One set of random weights in our attention and in an implementation of others'."""

import pytest
import torch
from torch import nn

from tests.attention.cases import enlarged, normal, padding_mask, run_with_weights
from tests.tolerances import assert_close
from tupe_fairseq.attention import TupeMultiheadAttention
from tupe_fairseq.position import build_position_encoding

EMBED_DIM = 24
NUM_HEADS = 2
LENGTH = 9
HEAD_DIM = EMBED_DIM // NUM_HEADS
PADDINGS = pytest.mark.parametrize(
    "padding", [None, padding_mask(LENGTH, 4, 0)], ids=["full", "padded"]
)


def build(name, dtype=torch.float64, **options):
    """An encoding and an attention; its output projection is none, as in most of theirs."""
    encoding = build_position_encoding(name, EMBED_DIM, NUM_HEADS, LENGTH, **options)
    attention = TupeMultiheadAttention(
        EMBED_DIM, NUM_HEADS, 0.0, encoding.score_terms, encoding.build_layer_terms()
    )
    enlarged(encoding, 1)
    enlarged(attention, 2)
    nn.init.eye_(attention.out_proj.weight)
    nn.init.zeros_(attention.out_proj.bias)
    return encoding.to(dtype), attention.to(dtype)


def words_of(dtype=torch.float64):
    return normal(2, LENGTH, EMBED_DIM, seed=3, dtype=dtype)


def zero(*biases):
    """Parameters that theirs does not have."""
    for bias in biases:
        nn.init.zeros_(bias)


def copy(theirs, ours):
    """A linear layer, or a vector or table."""
    with torch.no_grad():
        if isinstance(theirs, nn.Module):
            theirs.load_state_dict(ours.state_dict())
        else:
            theirs.copy_(ours.reshape(theirs.shape))


def added_mask(padding, dtype):
    """B×1×1×S, added to the scores."""
    if padding is None:
        return None
    return torch.zeros(padding.shape, dtype=dtype).masked_fill(padding, -1e9)[:, None, None]


def assert_same(encoding, attention, padding, output, weights):
    """Their output, B×T×C, and attention weights, B×H×T×S, are those of our eager backend."""
    x = words_of(output.dtype)
    found, found_weights = run_with_weights(encoding, attention, x, padding)
    words = slice(None) if padding is None else ~padding
    assert_close(found[words], output[words])
    of_queries = (t.transpose(1, 2)[words] for t in (found_weights, weights))
    assert_close(*of_queries)
