"""T5's bias and ALiBi against the implementations of transformers."""

import math

import pytest
import torch

from tests.attention.shared_weights import EMBED_DIM, HEAD_DIM, LENGTH, NUM_HEADS, build, copy
from tests.tolerances import assert_close
from tupe_fairseq.position import build_position_encoding
from tupe_fairseq.position.indices import relative_buckets

pytest.importorskip("transformers", reason="the independent implementations are in transformers")


def t5_buckets(distance, num_buckets, max_distance, bidirectional):
    from transformers.models.t5.modeling_t5 import T5Attention

    return T5Attention._relative_position_bucket(
        distance, bidirectional, num_buckets, max_distance
    )


@pytest.mark.parametrize("bidirectional", [True, False])
def test_t5_buckets(bidirectional):
    """Equal where buckets are powers of two, as in every model released."""
    distance = torch.arange(-600, 601)
    for num_buckets in (8, 16, 32, 64, 128):
        for max_distance in (64, 128, 256, 512):
            arguments = num_buckets, max_distance, bidirectional
            if max_distance > num_buckets:
                ours = relative_buckets(distance, *arguments)
                assert torch.equal(ours, t5_buckets(distance, *arguments))


@pytest.mark.parametrize("max_distance", [164, 282, 505, 532])
def test_t5_buckets_differ_where_their_logarithm_is_rounded(max_distance):
    """Theirs is in fp32, ours in integers: at a bucket's edge they can fall to either side.

    With transformers 4.57 on x86 at 46 of the distances up to 600, over 72,371 settings: of 92
    buckets up to 164, distance 107 has logarithm 17.999998, in fp32 18.
    """
    distance = torch.arange(-600, 0)
    for num_buckets in range(4, 130, 2):
        arguments = num_buckets, max_distance, True
        ours, theirs = relative_buckets(distance, *arguments), t5_buckets(distance, *arguments)
        differ = ours != theirs
        exact = num_buckets // 4
        logarithm = (-distance[differ] / exact).double().log() / math.log(max_distance / exact)
        bucket = logarithm * (num_buckets // 2 - exact)
        assert_close(bucket, bucket.round(), torch.float32)
        assert (ours - theirs).abs().max() <= 1


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (8, 6)])
@pytest.mark.parametrize(("queries", "keys"), [(9, 9), (3, 9)])
def test_t5_bias(bidirectional, num_buckets, max_distance, queries, keys):
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
    assert_close(
        encoding.attention_bias(queries, keys).dense(), theirs.compute_bias(queries, keys)[0]
    )


@pytest.mark.parametrize("num_heads", [1, 2, 4, 8, 16])
def test_alibi_of_bloom(num_heads):
    """m_h·j, which is m_h·(j − i) after softmax; causal, so that j ≤ i.

    Where heads are no power of two, the released code takes slopes from two sequences; the paper
    knows one.
    """
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    ours = build_position_encoding("alibi", EMBED_DIM * 2, num_heads, LENGTH)
    score = ours.attention_bias(LENGTH, LENGTH).dense()
    by_key = build_alibi_tensor(torch.ones(1, LENGTH), num_heads, torch.float32)
    for i in range(LENGTH):
        assert_close(score[:, i, : i + 1], by_key[:, 0, : i + 1] - by_key[:, 0, i : i + 1])
