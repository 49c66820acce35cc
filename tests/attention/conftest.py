"""Where Triton's interpreter takes the place of a GPU."""

import pytest
import torch

from tests.attention.cases import INTERPRETED


@pytest.fixture(scope="session", autouse=True)
def bfloat16_as_on_gpus():
    """The interpreter, as of Triton 3.9, cuts it off and multiplies its bits as integers."""
    if not INTERPRETED:
        yield
        return
    from triton import language
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    multiply, narrow = InterpreterBuilder.create_dot, InterpreterBuilder.create_fp_trunc

    def widened(handle):
        if handle.dtype.scalar != language.bfloat16:
            return handle
        bits = torch.from_numpy(handle.data.view("int16").copy())
        return TensorHandle(bits.view(torch.bfloat16).float().numpy(), language.float32)

    def create_dot(self, a, b, *rest):
        return multiply(self, widened(a), widened(b), *rest)

    def create_fp_trunc(self, source, kind):
        if (source.dtype.scalar, kind.scalar) != (language.float32, language.bfloat16):
            return narrow(self, source, kind)
        rounded = torch.from_numpy(source.data).to(torch.bfloat16).view(torch.int16)
        return TensorHandle(rounded.numpy().view("uint16"), language.bfloat16)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InterpreterBuilder, "create_dot", create_dot)
        patch.setattr(InterpreterBuilder, "create_fp_trunc", create_fp_trunc)
        yield
