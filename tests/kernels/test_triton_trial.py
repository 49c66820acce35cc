"""Whether the Triton kernels can be used here."""

import pytest

from tests.triton_interpreter import DEVICE
from tupe_fairseq.kernels import triton_trial
from tupe_fairseq.kernels.triton_attention import attention
from tupe_fairseq.kernels.triton_trial import fault, unavailable

pytestmark = pytest.mark.usefixtures("kernels_of_triton")


def test_reason_where_it_cannot_run(monkeypatch):
    assert unavailable(DEVICE) is None
    assert "'mps'" in unavailable("mps")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert unavailable("cuda") == "triton is not installed"


def test_a_trial_finds_wrong_numbers_and_kernels_that_do_not_run(monkeypatch):
    assert fault(DEVICE) is None
    for replaced, reason in (
        (lambda *x, scale, **more: attention(*x, scale=2 * scale, **more), "wrong numbers"),
        (lambda *x, **more: attention(*x, **more) * float("nan"), "error nan"),
        (broken, "do not run here (there is no C compiler)"),
    ):
        fault.cache_clear()
        monkeypatch.setattr(triton_trial, "attention", replaced)
        assert reason in fault(DEVICE)
    fault.cache_clear()


def broken(*_, **__):
    raise OSError("there is no C compiler\nand more lines")
