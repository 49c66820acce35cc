"""Classification heads, whose names and sizes are read from the parameters."""

from __future__ import annotations

from collections.abc import Mapping

from fairseq.models.roberta import RobertaModel
from torch import Tensor


def head_names(state: Mapping[str, Tensor]) -> list[str]:
    """Names of the classification heads."""
    names = (name.split(".") for name in state if name.startswith("classification_heads."))
    return sorted({parts[1] for parts in names})


def register_heads(model: RobertaModel, state: Mapping[str, Tensor]) -> None:
    """Register the heads of a state dict with the model, in their sizes."""
    for head in head_names(state):
        sizes = [
            len(state.get(f"classification_heads.{head}.{name}.weight", ()))
            for name in ("out_proj", "dense")
        ]
        model.register_classification_head(head, *(size or 1 for size in sizes))
