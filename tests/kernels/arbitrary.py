"""What may be handed to a kernel: tensors of any shape, strides and dtype.

They are computed or refused. tests/by_hand/test_sanitizers.py runs these tests with kernels under
sanitizers, which end the process at the first number that is read or written outside of a tensor.
"""

import torch
from hypothesis import settings
from hypothesis import strategies as st

from tests.tolerances import assert_close

#: What a mistake in shapes raises: our refusal, or torch's.
REFUSED = (ValueError, RuntimeError, IndexError)
SIZES = st.sampled_from([1, 2, 3, 16, 17, 33])
DTYPES = st.sampled_from([*[torch.float32] * 6, torch.float64, torch.bfloat16])

examples = settings(max_examples=150, deadline=None)


@st.composite
def tensors(draw, *shape):
    """A tensor, mostly of this shape; sometimes with other sizes, strides or dtype."""
    sizes = [draw(SIZES) if draw(st.integers(0, 9)) == 0 else size for size in shape]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    x = torch.randn(sizes, generator=generator).to(draw(DTYPES))
    layout = draw(st.sampled_from(["dense", "dense", "dense", "transposed", "holes", "same"]))
    if layout == "transposed":
        return x.mT.contiguous().mT if x.dim() > 1 else x
    if layout == "holes":
        return torch.stack((x, x), -1)[..., 0]
    return x[..., :1].expand(sizes) if layout == "same" else x


def same_or_refused(compute, define, *pairs):
    """Compute what the definition gives, or refuse.

    Where a tensor of the pairs has another shape than the one beside it, computing must only end.
    """
    try:
        out = compute()
    except REFUSED:
        return
    if all(x is None or x.shape == shape for x, shape in pairs):
        assert_close(out.double(), define().double(), out.dtype)
