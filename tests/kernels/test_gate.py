"""The one place that hands tensors to kernels, and what it refuses."""

import re

import pytest
import torch

from tests import ROOT
from tupe_fairseq.base.errors import DataError
from tupe_fairseq.kernels.native import pointer


def test_no_other_place_takes_the_address_of_a_tensor():
    taking = [
        f"{file.name}: {line.strip()}"
        for file in (ROOT / "tupe_fairseq").rglob("*.py")
        for line in file.read_text(encoding="utf-8").splitlines()
        if re.search(r"\bdata_ptr\(", line)
    ]
    assert taking == ["native.py: return x.data_ptr()"]


@pytest.mark.parametrize(
    ("x", "told"),
    [
        (torch.zeros(2, 4), r"shape \(2, 3\) on cpu, but gets torch.float32 of shape \(2, 4\)"),
        (torch.zeros(2, 3, dtype=torch.float64), "gets torch.float64"),
        (torch.zeros(3, 2).mT, r"contiguous tensor, but gets the strides \(1, 2\)"),
    ],
)
def test_a_refusal_says_what_does_not_fit(x, told):
    with pytest.raises(DataError, match=told):
        pointer(x, 2, 3)
