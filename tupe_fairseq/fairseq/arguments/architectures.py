"""Named architectures: one table, for `--arch NAME` and for hydra's `model._name=NAME` alike."""

from typing import Any

Architectures = dict[str, dict[str, Any]]


def _sizes(side: str, layers: int, width: int, ffn: int, heads: int) -> dict[str, Any]:
    """Of an "encoder" or "decoder"."""
    return {
        f"{side}_layers": layers,
        f"{side}_embed_dim": width,
        f"{side}_ffn_embed_dim": ffn,
        f"{side}_attention_heads": heads,
    }


#: The layers of ModernBERT (Warner et al. 2024). A gate adds a half to the feed-forward weights,
#: so the width is two thirds of RoBERTa's; `base` has the sizes of ModernBERT-base.
MODERN: dict[str, Any] = {
    "encoder_normalize_before": True,
    "gated_ffn": "geglu",
    "norm_bias": False,
    "attention_bias": False,
    "ffn_bias": False,
    "first_attention_norm": False,
}

#: Differences from stock RoBERTa-base (12×768, post-LN, embedding LayerNorm: BERT-Base), which has
#: the same dropout (0.1), activation (gelu), pooler (tanh) and 512 positions.
ROBERTA_ARCHITECTURES: Architectures = {
    "tupe_roberta": {},
    "tupe_roberta_tiny": _sizes("encoder", 4, 128, 512, 4),
    "tupe_roberta_small": _sizes("encoder", 6, 512, 2048, 8),
    "tupe_roberta_base": {},
    "tupe_roberta_large": _sizes("encoder", 24, 1024, 4096, 16),
    # As fairseq's `roberta_prenorm`.
    "tupe_roberta_prenorm": {"encoder_normalize_before": True, "layernorm_embedding": False},
    "tupe_roberta_modern_tiny": {**_sizes("encoder", 4, 128, 352, 4), **MODERN},
    "tupe_roberta_modern_small": {**_sizes("encoder", 6, 512, 1376, 8), **MODERN},
    "tupe_roberta_modern_base": {**_sizes("encoder", 22, 768, 1152, 12), **MODERN},
}

#: Differences from stock fairseq's `transformer` (6+6 layers, 512, 2048, 8 heads), which the names
#: follow; `tiny` is the size that suits some 30,000 sentence pairs. The decoder's width and
#: feed-forward network follow the encoder's.
TRANSFORMER_ARCHITECTURES: Architectures = {
    "tupe_transformer": {},
    "tupe_transformer_tiny": {
        **_sizes("encoder", 4, 128, 256, 4),
        "decoder_layers": 4,
        "decoder_attention_heads": 4,
    },
    "tupe_transformer_iwslt_de_en": {
        **_sizes("encoder", 6, 512, 1024, 4),
        "decoder_attention_heads": 4,
    },
    "tupe_transformer_base": {},
    "tupe_transformer_big": {
        **_sizes("encoder", 6, 1024, 4096, 16),
        "decoder_attention_heads": 16,
        "dropout": 0.3,
    },
}

#: Differences from stock fairseq's `transformer_lm` (6 layers, 512, 2048, 8 heads, post-LN).
LM_ARCHITECTURES: Architectures = {
    "tupe_transformer_lm": {},
    "tupe_transformer_lm_tiny": {
        **_sizes("decoder", 4, 128, 512, 4),
        "decoder_normalize_before": True,
    },
    "tupe_transformer_lm_gpt2_small": {
        **_sizes("decoder", 24, 1024, 4096, 16),
        "decoder_normalize_before": True,
        "attention_dropout": 0.1,
        "activation_fn": "gelu",
    },
}
