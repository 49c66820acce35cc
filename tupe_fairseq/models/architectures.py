"""Named architectures: one table, for `--arch NAME` and for hydra's `model._name=NAME` alike."""

from __future__ import annotations

from typing import Any

from fairseq.models import register_model_architecture
from fairseq.models.roberta.model import base_architecture as stock_roberta_base
from fairseq.models.transformer import DEFAULT_MIN_PARAMS_TO_WRAP
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

#: What every architecture adds to stock RoBERTa.
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


def register_roberta_architectures() -> None:
    """Enter the table with fairseq; the model itself must be registered before."""
    for name in ROBERTA_ARCHITECTURES:
        register_model_architecture("tupe_roberta", name)(
            lambda args, name=name: apply_roberta_architecture(name, args)
        )
