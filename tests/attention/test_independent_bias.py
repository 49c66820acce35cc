"""T5's bias and ALiBi against the papers and the implementations of transformers."""

import pytest
import torch

from tests.attention.shared_weights import EMBED_DIM, HEAD_DIM, NUM_HEADS, build, copy
from tests.reference import alibi
from tests.tolerances import assert_close
from tupe_fairseq.position import build_position_encoding

pytest.importorskip("transformers", reason="the independent implementations are in transformers")


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (8, 6), (64, 512)])
def test_t5_bias(bidirectional, num_buckets, max_distance):
    """Equal where buckets are powers of two, as in every model released.

    Elsewhere some differ by one: theirs take logarithms in fp32, ours are computed in integers.
    """
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    encoding, _ = build(
        "t5", bidirectional=bidirectional, num_buckets=num_buckets, max_distance=max_distance
    )
    config = T5Config(
        d_model=EMBED_DIM,
        d_kv=HEAD_DIM,
        num_heads=NUM_HEADS,
        relative_attention_num_buckets=num_buckets,
        relative_attention_max_distance=max_distance,
    )
    config.is_decoder = not bidirectional
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).double()
    copy(theirs.relative_attention_bias.weight, encoding.relative_bias.weight)
    found = encoding.attention_bias(600, 600).dense()
    assert_close(found, theirs.compute_bias(600, 600)[0])


def alibi_bias(num_heads, length, **options):
    encoding = build_position_encoding("alibi", 12 * num_heads, num_heads, length, **options)
    return encoding.attention_bias(length, length).dense()


@pytest.mark.parametrize("num_heads", [1, 2, 3, 4, 8, 12])
def test_alibi_equals_the_loops(num_heads):
    """Also where heads are no power of two, for which the authors' code interpolates."""
    expected = alibi.positional_score({}, num_heads, 9, 9, 0)
    assert_close(alibi_bias(num_heads, 9), expected)


@pytest.mark.parametrize("num_heads", [1, 2, 3, 6, 8, 12, 20])
def test_official_slopes_are_those_of_bloom_and_mpt(num_heads):
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    mpt = pytest.importorskip("transformers.models.mpt.modeling_mpt")
    found = alibi_bias(num_heads, 5, alibi_slopes="official")
    # −m·(4 − j) and m·j: the same but for a constant of each row
    from_mpt = mpt.build_mpt_alibi_tensor(num_heads, 5)[:, 0]
    from_bloom = bloom.build_alibi_tensor(torch.ones(1, 5), num_heads, torch.float32)[:, 0]
    assert_close(found[:, 4], from_mpt)
    assert_close(found[:, 4] - found[:, 4, :1], from_bloom)


@pytest.mark.parametrize("slopes", ["geometric", "official"])
def test_alibi_tells_the_sides_apart(slopes):
    """By hand: −m·|i − j|, and −m·(|i − j| − ½) on the right."""
    found = alibi_bias(3, 4, alibi_slopes=slopes, alibi_sides=True)
    # s(2) = 1/16, 1/256 and the first of s(4) = 1/4, 1/16, ...
    exact = {
        "geometric": (2 ** (-8 / 3), 2 ** (-16 / 3), 2**-8),
        "official": (1 / 16, 1 / 256, 1 / 4),
    }
    for head, m in enumerate(exact[slopes]):
        row = [-2 * m, -1 * m, 0, -0.5 * m]
        assert_close(found[head, 2], torch.tensor(row))
