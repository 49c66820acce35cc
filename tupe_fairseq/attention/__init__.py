"""Attention with positions: one interface, several backends (`--attention-backend NAME`)."""

# Importing a backend registers it.
from . import blocked, eager, flash, sdpa  # noqa: F401
from .backend import ATTENTION_BACKENDS, Backend, Feature, SharedAttention, required_features
from .cache import LayerCache
from .choice import choose_backend, share_attention
from .cross_attention import CrossAttention, Source
from .layout import Layout, Padding
from .multihead_attention import TupeMultiheadAttention, with_layer_terms

__all__ = [
    "ATTENTION_BACKENDS",
    "Backend",
    "CrossAttention",
    "Feature",
    "LayerCache",
    "Layout",
    "Padding",
    "SharedAttention",
    "Source",
    "TupeMultiheadAttention",
    "choose_backend",
    "required_features",
    "share_attention",
    "with_layer_terms",
]
