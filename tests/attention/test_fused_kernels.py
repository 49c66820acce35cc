"""What torch's fused kernels for GPUs ask of those who call them. Results: tests/cuda."""

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from tests.attention.cases import (
    EMBED_DIM,
    ENCODINGS,
    NUM_HEADS,
    build,
    encoder_of,
    normal,
    padding_mask,
    prepared_for,
    run,
    served,
)
from tests.covering import covering
from tupe_fairseq.attention import Layout


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


@pytest.mark.parametrize(
    ("pair", "dtype", "padded"),
    covering(
        served(("sdpa", "flash"), ENCODINGS),
        (torch.float32, torch.bfloat16, torch.float16),
        (False, True),
    ),
    ids=str,
)
def test_what_kernels_are_called_with(pair, dtype, padded):
    """Vectors whose width kernels take, and masks of their dtype, which kernels for GPUs require.

    Other widths fall to the kernel that keeps all scores. With a mask the kernel is not cuDNN's,
    which gives the mask no gradient, and NaN for those of queries at some lengths.
    """
    name, case = pair
    encoding, attention = build(case, 9, dtype)
    x = normal(2, 9, EMBED_DIM, seed=0, dtype=dtype)
    with Calls() as calls:
        run(encoding, attention, x, padding_mask(9, 0, 4) if padded else None, backend=name)
    assert calls.made
    for vectors, mask, cudnn in calls.made:
        assert {vector.size(-1) % 8 for vector in vectors} == {0}
        assert len({vector.size(-1) for vector in vectors}) == 1
        assert {vector.dtype for vector in vectors} == {dtype}
        if mask is None:
            continue
        assert mask.dtype == dtype
        # One that began at an odd address ended in "misaligned address" on a GPU.
        assert mask.is_contiguous()
        assert mask.storage_offset() == 0
        assert not cudnn
        # Without terms of the content, one table for all sentences.
        if attention.layer_terms is None:
            assert mask.untyped_storage().nbytes() <= mask.itemsize * NUM_HEADS * 9 * 9
    assert torch.backends.cuda.cudnn_sdp_enabled()


@pytest.mark.parametrize("p", [0.0, 0.05, 0.0625, 0.1, 0.125, 0.3, 0.5, 0.9375, 1.0])
@pytest.mark.parametrize(
    ("name", "case"), served(("sdpa", "flash"), ["learned", "tupe_a", "rope"])
)
def test_dropout_is_not_rounded(name, case, p):
    """Some kernels of cuDNN round its probability to sixteenths; torch before 2.12 uses them."""
    encoding, attention = build(case, 9)
    attention.train().dropout = p
    with Calls() as calls, torch.no_grad():
        run(encoding, attention, normal(2, 9, EMBED_DIM, seed=0), backend=name)
    assert calls.made
    assert all(not cudnn or p * 16 == int(p * 16) for _, _, cudnn in calls.made)


def test_dropout_is_not_rounded_in_graphs():
    """Of layers that torch compiles."""
    layer = encoder_of("learned", 9, attention_backend="flash", attention_dropout=0.1).layers[0]
    calls = Calls()

    def recorded(graph, inputs):
        def run(*given):
            with calls:
                return graph.forward(*given)

        return run

    torch._dynamo.reset()
    compiled = torch.compile(layer, backend=recorded, fullgraph=True)
    encoding = build("learned", 9)[0]
    x = normal(2, 9, EMBED_DIM, seed=0)
    compiled(x, prepared_for(encoding, layer.self_attn, x, Layout(2, 9), backend="flash"))
    assert [cudnn for _, _, cudnn in calls.made] == [False]
