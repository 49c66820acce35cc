"""Graphs in ONNX that onnxruntime computes fast on CPUs.

Without shapes of intermediate results, onnxruntime keeps Add and LayerNormalization, which take a
third of the time of its SkipLayerNormalization (1.32).
"""

import io
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import torch


def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """scaled_dot_product_attention as this package calls it: scaled queries, and scores as mask.

    torch's translation transposes the keys by nine nodes.
    """
    from onnxscript import opset18 as op

    scores = op.MatMul(query, op.Transpose(key, perm=[0, 1, 3, 2]))
    if attn_mask is not None:
        scores = op.Add(scores, attn_mask)
    return op.MatMul(op.Softmax(scores, axis=-1), value)


#: For `custom_translation_table` of torch's exporter.
TRANSLATIONS: dict[Callable[..., Any], Any] = {
    torch.ops.aten.scaled_dot_product_attention.default: attention
}


def drop_shapes(path: Path) -> None:
    """Remove the shapes of intermediate results from a program; its other files stay."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    del model.graph.value_info[:]
    onnx.save(model, path)


@contextmanager
def quietly() -> Iterator[None]:
    """Without the exporter's progress and its warnings about torch's own code."""
    level = logging.root.manager.disable
    nowhere = io.StringIO()
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(nowhere), redirect_stderr(nowhere):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
