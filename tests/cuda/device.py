"""The device of these tests: a GPU, or what the variable TUPE_FAIRSEQ_TEST_DEVICE names.

`python -m pytest -m gpu` runs all tests for GPUs, as scripts/gpu_check.sh does. On a CPU the
variable shows that the tests work.
"""

import os
from contextlib import nullcontext

import pytest
import torch

from tests.attention.cases import served
from tests.tolerances import assert_close, assert_gradients_close, assert_halved
from tupe_fairseq.attention import ATTENTION_BACKENDS

DEVICE = os.environ.get("TUPE_FAIRSEQ_TEST_DEVICE") or (
    "cuda" if torch.cuda.is_available() else ""
)
if not DEVICE:
    pytest.skip("there is no GPU", allow_module_level=True)

# Its recurrent networks would round fp32 to 10 bits.
torch.backends.cudnn.allow_tf32 = False

HERE = [name for name, each in ATTENTION_BACKENDS.items() if not each.unavailable(DEVICE)]
#: How a model computes: dtype of its parameters, and that of autocast.
PRECISIONS = {
    "float32": (torch.float32, None),
    "float16": (torch.float16, None),
    "bfloat16": (torch.bfloat16, None),
    "autocast": (torch.float32, torch.bfloat16),
}


def autocast(dtype: torch.dtype | None):
    """A block under autocast to this dtype, or without autocast."""
    return nullcontext() if dtype is None else torch.autocast(DEVICE, dtype)


def pairs(cases):
    """The backends of the device with the cases that they serve."""
    return served(HERE, cases)


def assert_all_close(found, expected, of_found, of_expected):
    """Entry by entry in fp32; in half precision, norms of the errors."""
    if found.dtype == torch.float32:
        assert_close(found, expected)
        assert_gradients_close(of_found, of_expected, found.dtype)
    else:
        assert_halved(found, expected, of_found, of_expected)
