"""Named architectures: one table, for `--arch NAME` and for hydra's `model._name=NAME` alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fairseq.models import register_model_architecture
from fairseq.models.roberta.model import base_architecture as stock_roberta_base
from fairseq.models.transformer import DEFAULT_MIN_PARAMS_TO_WRAP
from fairseq.models.transformer import base_architecture as stock_transformer_base
from fairseq.models.transformer_lm import base_lm_architecture as stock_lm_base
from fairseq.utils import safe_hasattr

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
    # As on the command line, where argparse sets it: hydra has no such default.
    "min_params_to_wrap": DEFAULT_MIN_PARAMS_TO_WRAP,
}


def fill(args: Any, values: dict[str, Any]) -> None:
    """Set what is not yet set on a Namespace or DictConfig."""
    for name, value in values.items():
        if not safe_hasattr(args, name):
            setattr(args, name, value)


def apply_roberta_architecture(name: str, args: Any) -> None:
    """Complete the arguments of a `tupe_roberta` model with the preset of that name."""
    fill(args, ROBERTA_ARCHITECTURES[name])
    fill(args, TUPE_DEFAULTS)
    stock_roberta_base(args)


def apply_transformer_architecture(name: str, args: Any) -> None:
    """Complete the arguments of a `tupe_transformer` model with the preset of that name."""
    fill(args, TRANSFORMER_ARCHITECTURES[name])
    fill(args, TUPE_DEFAULTS)
    stock_transformer_base(args)


def apply_lm_architecture(name: str, args: Any) -> None:
    """Complete the arguments of a `tupe_transformer_lm` model with the preset of that name."""
    fill(args, LM_ARCHITECTURES[name])
    fill(args, TUPE_DEFAULTS)
    # What fairseq's own takes from a dataclass.
    fill(args, {"activation_dropout": 0.0, "relu_dropout": 0.0, "decoder_normalize_before": False})
    pre = args.decoder_normalize_before
    stock_lm_base(args)
    # fairseq's function sets it, but fairseq's `--arch transformer_lm` never calls that function.
    args.decoder_normalize_before = pre


def register_architectures(
    model: str, names: Iterable[str], apply: Callable[[str, Any], None]
) -> None:
    """Enter a table with fairseq; the model itself must be registered before."""
    for name in names:
        register_model_architecture(model, name)(lambda args, name=name: apply(name, args))
