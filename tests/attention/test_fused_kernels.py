"""What torch's fused kernels for GPUs ask of those who call them. Results: tests/cuda."""

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from tests.attention.cases import (
    EMBED_DIM,
    ENCODINGS,
    build,
    normal,
    padding_mask,
    run,
    served,
)


class Calls(TorchFunctionMode):
    """Records what torch's attention is called with, and whether cuDNN may serve it."""

    def __init__(self):
        super().__init__()
        self.made = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            mask = args[3] if len(args) > 3 else kwargs.get("attn_mask")
            self.made.append((args[:3], mask, torch.backends.cuda.cudnn_sdp_enabled()))
        return func(*args, **kwargs)


def calls(name, case, padded):
    encoding, attention = build(case, 9)
    x, padding = normal(2, 9, EMBED_DIM, seed=0), padding_mask(9, 0, 4) if padded else None
    with Calls() as found:
        run(encoding, attention, x, padding, backend=name)
    assert found.made
    return found.made


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize(("name", "case"), served(("sdpa", "flash"), ENCODINGS))
def test_what_kernels_are_called_with(name, case, padded):
    """Vectors whose width the kernels take; with a mask not cuDNN's, which gives it no gradient.

    Other widths fall to the kernel that keeps all scores. cuDNN's gives NaN for the gradients of
    queries at some lengths.
    """
    for vectors, mask, cudnn in calls(name, case, padded):
        assert {vector.size(-1) % 8 for vector in vectors} == {0}
        assert len({vector.size(-1) for vector in vectors}) == 1
        assert mask is None or not cudnn
    assert torch.backends.cuda.cudnn_sdp_enabled()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("name", "case"), served(("sdpa", "flash"), ENCODINGS))
def test_masks_have_the_dtype_of_queries(name, case, dtype):
    """Kernels for GPUs refuse another one, kernels for CPUs do not."""
    encoding, attention = build(case, 9, dtype)
    x = normal(2, 9, EMBED_DIM, seed=0, dtype=dtype)
    with Calls() as found:
        run(encoding, attention, x, padding_mask(9, 0, 4), backend=name)
    for vectors, mask, _ in found.made:
        assert {vector.dtype for vector in vectors} == {dtype}
        assert mask is None or mask.dtype == dtype
