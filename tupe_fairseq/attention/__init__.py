"""Attention with positions: one module, several backends (`--attention-backend NAME`)."""

import importlib
import pkgutil

from .backend import ATTENTION_BACKENDS, Backend, SharedAttention, choose_backend, share_attention
from .layout import Layout
from .multihead_attention import TupeMultiheadAttention

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = [
    "ATTENTION_BACKENDS",
    "Backend",
    "Layout",
    "SharedAttention",
    "TupeMultiheadAttention",
    "choose_backend",
    "share_attention",
]
