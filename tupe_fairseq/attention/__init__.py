"""Attention with positions: one interface, several backends (`--attention-backend NAME`)."""

# Importing a backend registers it.
from . import blocked, eager, flash, sdpa, triton  # noqa: F401
from .backend import ATTENTION_BACKENDS, Backend, Feature, Prepared
from .cross_attention import CrossAttention, Source
from .layer_cache import LayerCache
from .layout import Layout, Padding
from .multihead_attention import TupeMultiheadAttention
from .plan import LayerPlan, choose_backend

__all__ = [
    "ATTENTION_BACKENDS",
    "Backend",
    "CrossAttention",
    "Feature",
    "LayerCache",
    "LayerPlan",
    "Layout",
    "Padding",
    "Prepared",
    "Source",
    "TupeMultiheadAttention",
    "choose_backend",
]
