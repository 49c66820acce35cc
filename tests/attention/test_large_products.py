"""Products of attention by oneDNN, on processors where that is faster."""

import pytest
import torch

from tests.attention.cases import EMBED_DIM, build, gradients, normal, padding_mask, run
from tests.tolerances import assert_close, assert_gradients_close
from tupe_fairseq.kernels import linear, products

LENGTH = 23


@pytest.mark.skipif(
    not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="this torch has no oneDNN"
)
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("case", ["tupe_r", "shaw", "deberta", "transformer_xl"])
def test_products_by_onednn(monkeypatch, case, batch, padded):
    """The results of the backend that multiplies all matrices by torch, in float32's rounding."""
    encoding, attention = build(case, LENGTH)
    x = normal(batch, LENGTH, EMBED_DIM, seed=0).requires_grad_()
    padding = padding_mask(LENGTH, *(0, 9, 22)[:batch]) if padded else None
    expected, _ = run(encoding, attention, x, padding, backend="eager")
    of_expected = gradients(expected, x, encoding, attention)
    calls = []

    def product(a, b):
        calls.append(a.shape)
        # oneDNN multiplies matrices within larger rows by slow code.
        assert all(x.is_contiguous() or x.mT.is_contiguous() for x in (a, b))
        return own(a, b)

    own = products.product
    monkeypatch.setattr(products, "product", product)
    monkeypatch.setattr(products, "has_kernel", lambda dtype: False)
    monkeypatch.setattr(products, "LARGE", 1)
    monkeypatch.setattr(linear, "SMALLEST", 1)
    for module in (linear, products):
        monkeypatch.setattr(module, "prefers_onednn", lambda: True)
    actual, _ = run(encoding, attention, x, padding, backend="blocked")
    assert_close(actual, expected)
    assert_gradients_close(gradients(actual, x, encoding, attention), of_expected, torch.float32)
    assert calls
