"""Named architectures: one table, for `--arch NAME` and for hydra's `model._name=NAME` alike."""

from typing import Any

from fairseq.models.transformer import DEFAULT_MIN_PARAMS_TO_WRAP

#: Differences from stock RoBERTa-base (12×768, post-LN, embedding LayerNorm: BERT-Base), which has
#: the same dropout (0.1), activation (gelu), pooler (tanh) and 512 positions.
ROBERTA_ARCHITECTURES: dict[str, dict[str, Any]] = {
    "tupe_roberta": {},
    "tupe_roberta_tiny": {
        "encoder_layers": 4,
        "encoder_embed_dim": 128,
        "encoder_ffn_embed_dim": 512,
        "encoder_attention_heads": 4,
    },
    "tupe_roberta_small": {
        "encoder_layers": 6,
        "encoder_embed_dim": 512,
        "encoder_ffn_embed_dim": 2048,
        "encoder_attention_heads": 8,
    },
    "tupe_roberta_base": {},
    "tupe_roberta_large": {
        "encoder_layers": 24,
        "encoder_embed_dim": 1024,
        "encoder_ffn_embed_dim": 4096,
        "encoder_attention_heads": 16,
    },
}

#: Differences from stock fairseq's `transformer` (6+6 layers, 512, 2048, 8 heads), which the names
#: follow; `tiny` is the size that suits some 30,000 sentence pairs.
TRANSFORMER_ARCHITECTURES: dict[str, dict[str, Any]] = {
    "tupe_transformer": {},
    "tupe_transformer_tiny": {
        "encoder_layers": 4,
        "encoder_embed_dim": 128,
        "encoder_ffn_embed_dim": 256,
        "encoder_attention_heads": 4,
        "decoder_layers": 4,
        "decoder_attention_heads": 4,
    },
    "tupe_transformer_iwslt_de_en": {
        "encoder_ffn_embed_dim": 1024,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
    },
    "tupe_transformer_base": {},
    "tupe_transformer_big": {
        "encoder_embed_dim": 1024,
        "encoder_ffn_embed_dim": 4096,
        "encoder_attention_heads": 16,
        "decoder_attention_heads": 16,
        "dropout": 0.3,
    },
}

#: Differences from stock fairseq's `transformer_lm` (6 layers, 512, 2048, 8 heads, post-LN).
LM_ARCHITECTURES: dict[str, dict[str, Any]] = {
    "tupe_transformer_lm": {},
    "tupe_transformer_lm_tiny": {
        "decoder_layers": 4,
        "decoder_embed_dim": 128,
        "decoder_ffn_embed_dim": 512,
        "decoder_attention_heads": 4,
        "decoder_normalize_before": True,
    },
    "tupe_transformer_lm_gpt2_small": {
        "decoder_layers": 24,
        "decoder_embed_dim": 1024,
        "decoder_ffn_embed_dim": 4096,
        "decoder_attention_heads": 16,
        "decoder_normalize_before": True,
        "attention_dropout": 0.1,
        "activation_fn": "gelu",
    },
}

#: What every architecture adds to stock fairseq's.
TUPE_DEFAULTS: dict[str, Any] = {
    "position_encoding": "tupe_r",
    "attention_backend": "auto",
    "checkpoint_activations": False,
    "compile_layers": False,
    "extend_positions": None,
    "attention_window": None,
    "global_every": 0,
    # argparse sets it on the command line; hydra has no such default.
    "min_params_to_wrap": DEFAULT_MIN_PARAMS_TO_WRAP,
}
