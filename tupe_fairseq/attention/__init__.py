"""Attention with positions: one interface, several backends (`--attention-backend NAME`)."""

import importlib
import pkgutil

from .backend import ATTENTION_BACKENDS, Backend, Feature, SharedAttention, required_features
from .cache import LayerCache
from .choice import choose_backend, share_attention
from .cross_attention import CrossAttention, Source
from .layout import Layout, Padding
from .multihead_attention import TupeMultiheadAttention, with_layer_terms

# Registers the backends.
for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

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
