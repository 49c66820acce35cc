"""Programs in ONNX of encodings that few models have; one takes about five seconds."""

import pytest
import torch

from tests.convert.samples import masked_lm, writes_onnx
from tests.convert.test_onnx import largest_error
from tests.tolerances import FORWARD
from tupe_fairseq.convert.formats import onnx

pytestmark = writes_onnx


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("tupe_r", {}),
        ("pope", {}),
        ("floater", {}),
        ("shaw", {"relative_clip": 3}),
        ("transformer_xl", {}),
        ("deberta", {"relative_clip": 3}),
        ("fire", {"fire_threshold": 8}),
    ],
)
def test_outputs(name, options, tmp_path):
    """With options that short texts reach beyond."""
    built, converted = masked_lm(name, encoder_layers=1, **options)
    onnx.write(converted, tmp_path / "out")
    run = onnx.session(tmp_path / "out" / onnx.FILE, converted)
    assert largest_error(run, built, None) < FORWARD[torch.float32]
