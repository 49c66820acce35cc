"""Encodings against what fairseq has inside its speech models, on shared random weights."""

import pytest
import torch

from tests.attention.cases import normal, run
from tests.attention.shared_weights import (
    EMBED_DIM,
    LENGTH,
    NUM_HEADS,
    PADDINGS,
    build,
    copy,
    words_of,
)
from tests.tolerances import assert_close

espnet = pytest.importorskip("fairseq.modules.espnet_multihead_attention")
positional_encoding = pytest.importorskip("fairseq.modules.positional_encoding")


@PADDINGS
def test_transformer_xl(padding):
    """Also bidirectional, and with the waves in our order: nothing to be undone."""
    encoding, attention = build("transformer_xl", torch.float32)
    theirs = espnet.RelPositionMultiHeadedAttention(EMBED_DIM, NUM_HEADS, dropout=0.0)
    terms = attention.layer_terms
    for name in ("q", "k", "v", "out"):
        copy(getattr(theirs, f"linear_{name}"), getattr(attention, f"{name}_proj"))
    copy(theirs.linear_pos, terms.r_proj)
    copy(theirs.pos_bias_u, terms.content_bias)
    copy(theirs.pos_bias_v, terms.position_bias)
    x = words_of(torch.float32)
    time_first = x.transpose(0, 1)
    waves = positional_encoding.RelPositionalEncoding(LENGTH, EMBED_DIM)(time_first)
    expected, _ = theirs(time_first, time_first, time_first, waves, key_padding_mask=padding)
    words = slice(None) if padding is None else ~padding
    found = run(encoding, attention, x, padding)
    assert_close(found[words], expected.transpose(0, 1)[words])


def test_rope():
    """Their pairs are dimensions i and i + D/2, ours 2i and 2i + 1.

    Their attention turns the words before the projections, which no paper does: compared is the
    rotation alone.
    """
    encoding, attention = build("rope", torch.float32)
    d = attention.head_dim
    q, k = (normal(2, NUM_HEADS, LENGTH, d, seed=seed) for seed in (1, 2))
    order = torch.arange(d).view(2, d // 2).t().flatten()  # ours -> theirs
    rotary = espnet.RotaryPositionalEmbedding(d, precision=torch.float)
    cos, sin = rotary(q, seq_len=LENGTH)
    # B×H×T×D -> T×B×H×D
    time_first = (x.permute(2, 0, 1, 3) for x in (q, k))
    expected = espnet.apply_rotary_pos_emb(*time_first, cos, sin)
    found = encoding.rotate(q[..., order], k[..., order], k)[:2]
    for ours, theirs in zip(found, expected, strict=True):
        assert_close(ours, theirs.permute(1, 2, 0, 3)[..., order])


def test_sinusoidal():
    """Of the speech models, which scale the words by √C.

    That of fairseq's text models has frequencies of its own, 10000^{−i/(C/2−1)}, as tensor2tensor.
    """
    theirs = positional_encoding.PositionalEncoding(EMBED_DIM, dropout_rate=0.0, max_len=LENGTH)
    ours, _ = build("sinusoidal", torch.float32)
    zeros = torch.zeros(1, LENGTH, EMBED_DIM)
    assert_close(ours.embed(zeros), theirs(zeros))
