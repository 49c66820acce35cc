"""Attention without gradients, which a kernel in C computes at once where it is faster."""

import pytest
import torch

from tests.attention.cases import EMBED_DIM, build, normal, padding_mask, run, run_packed
from tests.tolerances import assert_close
from tupe_fairseq.attention import Layout, Padding

CASES = ("none", "rope", "rope-values", "alibi", "t5", "tupe_a", "tupe_r", "sandwich", "shaw")


@torch.no_grad()
@pytest.mark.parametrize("length", [23, 70])
@pytest.mark.parametrize("hidden", [{}, {"causal": True}, {"window": 3}], ids=str)
@pytest.mark.parametrize("padded", [None, (0, 9, 22), (0, 1, 2), "anywhere"], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_without_gradients(way, case, padded, hidden, length):
    """The results of `eager`: of full batches, short sequences, and padding that stays.

    Of full batches below 32 tokens and of longer ones, kernels of their own compute attention.
    """
    padding = None
    if padded == "anywhere":
        padding = torch.zeros(3, length, dtype=torch.bool)
        padding[0, 5], padding[1, -2:] = True, True
        # So little padding stays in the batch.
        assert Layout.of(Padding.read(padding), 3, length).lengths is None
    elif padded is not None:
        padding = padding_mask(length, *padded)
    encoding, attention = build(case, length)
    x = normal(3, length, EMBED_DIM, seed=0)
    assert_close(
        run_packed(encoding, attention.eval(), x, padding, backend="blocked", **hidden),
        run_packed(encoding, attention.eval(), x, padding, backend="eager", **hidden),
    )


def test_gradients_of_a_model_in_evaluation():
    """With gradients, the kernel is not asked."""
    encoding, attention = build("tupe_r", 23)
    x = normal(2, 23, EMBED_DIM, seed=0).requires_grad_()
    run(encoding, attention.eval(), x, backend="blocked")[0].sum().backward()
    assert x.grad.abs().sum() > 0
