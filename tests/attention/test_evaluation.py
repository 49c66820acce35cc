"""Attention without gradients, which a kernel in C computes at once where it is faster."""

import pytest
import torch

from tests.attention.cases import EMBED_DIM, build, normal, padding_mask
from tests.tolerances import assert_close
from tupe_fairseq.attention import blocked, share_attention
from tupe_fairseq.attention.layout import Layout, Padding
from tupe_fairseq.kernels import linear, products

CASES = ("none", "rope", "rope-values", "alibi", "t5", "tupe_a", "tupe_r", "sandwich", "shaw")
LENGTH = 23


def attended(case, backend, padding, **hidden):
    """The output for three sequences, without the cells of padding."""
    encoding, attention = build(case, LENGTH)
    x = normal(3, LENGTH, EMBED_DIM, seed=0)
    layout = Layout.of(Padding.read(padding), 3, LENGTH)
    with torch.no_grad():
        packed = layout.pack(x)
        terms = attention.layer_terms
        shared = share_attention(
            encoding, packed, layout=layout, layer_terms=terms, backend=backend, **hidden
        )
        out = layout.unpack(attention.eval()(packed, shared)[0])
    return out if padding is None else out[~padding]


@pytest.mark.parametrize("short", [0, 1000], ids=["kernel", "torch"])
@pytest.mark.parametrize("hidden", [{}, {"causal": True}, {"window": 3}], ids=str)
@pytest.mark.parametrize("lengths", [None, (0, 9, 22), (0, 1, 2), "anywhere"], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_without_gradients(monkeypatch, case, lengths, hidden, short):
    """The results of `eager`: of full batches, short sequences, and padding that stays."""
    monkeypatch.setattr(blocked, "SHORT", short)
    for module in (linear, products):
        monkeypatch.setattr(module, "prefers_onednn", lambda: True)
    padding = None
    if lengths == "anywhere":
        padding = torch.zeros(3, LENGTH, dtype=torch.bool)
        padding[0, 5], padding[1, -2:] = True, True
        # So little padding stays in the batch.
        assert Layout.of(Padding.read(padding), 3, LENGTH).lengths is None
    elif lengths is not None:
        padding = padding_mask(LENGTH, *lengths)
    assert_close(
        attended(case, "blocked", padding, **hidden), attended(case, "eager", padding, **hidden)
    )


def test_gradients_of_a_model_in_evaluation():
    """With gradients, the kernel is not asked."""
    encoding, attention = build("tupe_r", LENGTH)
    x = normal(2, LENGTH, EMBED_DIM, seed=0).requires_grad_()
    out, _ = attention.eval()(x, share_attention(encoding, x, backend="blocked"))
    out.sum().backward()
    assert x.grad.abs().sum() > 0
