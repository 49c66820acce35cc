"""Convert state dicts of old fairseq versions and stock models to today's names."""

import re
from collections.abc import Sequence

from torch import Tensor

#: A stock layer of fairseq 0.12.2 saves its weights a second time, under these names.
SECOND_COPY = re.compile(r"\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)$")


def rename_old_layers(state_dict: dict[str, Tensor], name: str, norms: Sequence[str]) -> None:
    """Rename the layers of an old fairseq state dict in place, and drop second copies.

    Args:
        state_dict: of a model.
        name: of the encoder or decoder in it.
        norms: today's names of `layer_norms.0`, `layer_norms.1`, ...
    """
    for key in list(state_dict):
        if not key.startswith(f"{name}.layers."):
            continue
        if SECOND_COPY.search(key):
            del state_dict[key]
        elif match := re.fullmatch(r"(.*)\.layer_norms\.(\d)\.(weight|bias)", key):
            layer, which, kind = match.groups()
            state_dict[f"{layer}.{norms[int(which)]}.{kind}"] = state_dict.pop(key)
        elif match := re.fullmatch(r"(.*)\.in_proj_(weight|bias)", key):
            attention, kind = match.groups()
            for proj, part in zip("qkv", state_dict.pop(key).chunk(3), strict=True):
                state_dict[f"{attention}.{proj}_proj.{kind}"] = part


def drop_stock_sinusoids(state_dict: dict[str, Tensor], name: str) -> None:
    """Drop in place what fairseq's sinusoidal positions save, which nothing reads."""
    for key in ("_float_tensor", "weights"):
        state_dict.pop(f"{name}.embed_positions.{key}", None)
