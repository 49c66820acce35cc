"""Encodings against the implementations of transformers, on shared random weights.

Where a paper and its released code differ, we follow the paper: the difference is named at the
test, which compares with the difference undone. Some classes exist in some versions only.
"""

from types import SimpleNamespace

import pytest
import torch

from tests.attention.shared_weights import (
    EMBED_DIM,
    HEAD_DIM,
    LENGTH,
    NUM_HEADS,
    PADDINGS,
    added_mask,
    assert_same,
    build,
    copy,
    words_of,
    zero,
)

pytest.importorskip("transformers", reason="the independent implementations are in transformers")


@PADDINGS
@pytest.mark.parametrize("rotate_values", [False, True])
def test_roformer(rotate_values, padding):
    """Their table of sines is fp32."""
    from transformers import RoFormerConfig
    from transformers.models.roformer import modeling_roformer as roformer

    encoding, attention = build("rope", torch.float32, rope_values=rotate_values)
    config = RoFormerConfig(
        hidden_size=EMBED_DIM, num_attention_heads=NUM_HEADS, rotary_value=rotate_values
    )
    theirs = roformer.RoFormerSelfAttention(config).eval()
    for name, ours in (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj")):
        copy(getattr(theirs, name), getattr(attention, ours))
    table = roformer.RoFormerSinusoidalPositionalEmbedding(LENGTH, HEAD_DIM)
    if hasattr(table, "create_weight"):  # transformers 5
        copy(table.weight, table.create_weight())
    else:
        table._init_weight()
    output, weights = theirs(
        words_of(torch.float32),
        attention_mask=added_mask(padding, torch.float32),
        sinusoidal_pos=table((1, LENGTH))[None, None],
        output_attentions=True,
    )
    assert_same(encoding, attention, padding, output, weights)


def stacked_waves(r_proj):
    """The columns of W_{K,R} for code that puts all sines before all cosines."""
    return torch.cat((r_proj.weight[:, 0::2], r_proj.weight[:, 1::2]), 1)


def xlnet_waves(cls):
    """R of all distances, which their model hands to its layers, (2·T)×B×C."""
    model = SimpleNamespace(
        d_model=EMBED_DIM,
        attn_type="bi",
        bi_data=False,
        clamp_len=-1,
        positional_embedding=cls.positional_embedding,
    )
    return cls.relative_positional_encoding(model, LENGTH, LENGTH, 2)


@PADDINGS
def test_xlnet(padding):
    """Theirs has no biases; segments and memory are left out. Their waves are fp32."""
    from transformers import XLNetConfig
    from transformers.models.xlnet.modeling_xlnet import XLNetModel, XLNetRelativeAttention

    encoding, attention = build("transformer_xl", torch.float32)
    terms = attention.layer_terms
    zero(attention.q_proj.bias, attention.k_proj.bias, attention.v_proj.bias)
    theirs = XLNetRelativeAttention(XLNetConfig(d_model=EMBED_DIM, n_head=NUM_HEADS)).eval()
    for name in "qkv":
        copy(getattr(theirs, name), getattr(attention, f"{name}_proj").weight.t())
    copy(theirs.r, stacked_waves(terms.r_proj).t())
    copy(theirs.r_w_bias, terms.content_bias)
    copy(theirs.r_r_bias, terms.position_bias)
    heads = {
        name: torch.einsum("tbc,chd->tbhd", h, getattr(theirs, name))
        for name, h in (
            *((n, words_of(torch.float32).transpose(0, 1)) for n in "qkv"),
            ("r", xlnet_waves(XLNetModel)),
        )
    }
    # B×S -> T×S×B×1; they add −1e30 times the mask
    mask = None if padding is None else padding.t()[None, :, :, None].expand(LENGTH, -1, -1, 1)
    output, weights = theirs.rel_attn_core(
        *heads.values(), attn_mask=mask if mask is None else mask.float(), output_attentions=True
    )
    # T×B×H×D -> B×T×C, and T×S×B×H -> B×H×T×S
    output = output.flatten(2).transpose(0, 1)
    assert_same(encoding, attention, padding, output, weights.permute(2, 3, 0, 1))


@PADDINGS
@pytest.mark.parametrize("clip", [1, 3, 20])
def test_wav2vec2_bert_with_relative_keys(clip, padding):
    """Shaw's keys with a clip.

    Theirs and the paper's section 3.2 count j − i, ours i − j: the rows in reverse order.
    """
    from transformers import Wav2Vec2BertConfig
    from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import Wav2Vec2BertSelfAttention

    config = Wav2Vec2BertConfig(
        hidden_size=EMBED_DIM,
        num_attention_heads=NUM_HEADS,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=clip,
        right_max_position_embeddings=clip,
        attn_implementation="eager",
    )
    encoding, attention = build("shaw", relative_clip=clip)
    zero(attention.layer_terms.value_weight)
    theirs = Wav2Vec2BertSelfAttention(config).eval().double()
    for name, ours in (("q", "q_proj"), ("k", "k_proj"), ("v", "v_proj"), ("out", "out_proj")):
        copy(getattr(theirs, f"linear_{name}"), getattr(attention, ours))
    copy(theirs.distance_embedding.weight, attention.layer_terms.key.flip(0))
    mask = added_mask(padding, torch.float64)
    output, weights = theirs(words_of(), attention_mask=mask, output_attentions=True)
    assert_same(encoding, attention, padding, output, weights)
