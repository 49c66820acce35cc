"""What torch's fused kernels for GPUs ask of those who call them; and their results on a GPU."""

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from tests.attention.cases import (
    EMBED_DIM,
    ENCODINGS,
    PAPER,
    assert_equals_eager,
    build,
    normal,
    padding_mask,
    run,
    served,
)

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


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
def test_vectors_are_as_wide_as_kernels_take_them(name, case, padded):
    """Others fall to the kernel that keeps all scores."""
    for vectors, _, _ in calls(name, case, padded):
        assert {vector.size(-1) % 8 for vector in vectors} == {0}
        assert len({vector.size(-1) for vector in vectors}) == 1


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize(("name", "case"), served(("sdpa", "flash"), ENCODINGS))
def test_cudnn_is_kept_from_masks(name, case, padded):
    """It gives none a gradient, and those of queries are NaN for some lengths."""
    for _, mask, cudnn in calls(name, case, padded):
        assert mask is None or not cudnn
    assert torch.backends.cuda.cudnn_sdp_enabled()


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("length", [63, 64, 192])
@pytest.mark.parametrize(("name", "case"), served(("sdpa", "flash"), PAPER))
def test_on_a_gpu_equals_eager(name, case, length, padded, dtype):
    assert_equals_eager(name, case, length, padded, dtype, length, "cuda")
