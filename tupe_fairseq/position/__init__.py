"""Position encodings: one file each, all reached by `--position-encoding NAME`.

Every file of this folder is imported, so a new encoding needs no entry anywhere.
"""

import importlib
import pkgutil

from .base import (
    POSITION_ENCODINGS,
    Option,
    PositionEncoding,
    Shape,
    build_position_encoding,
    known_options,
    register_position_encoding,
)
from .bias import AttentionBias
from .layer_terms import LayerTerms
from .model_options import ModelOptions, model_options

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = [
    "POSITION_ENCODINGS",
    "AttentionBias",
    "LayerTerms",
    "ModelOptions",
    "Option",
    "PositionEncoding",
    "Shape",
    "build_position_encoding",
    "known_options",
    "model_options",
    "register_position_encoding",
]
