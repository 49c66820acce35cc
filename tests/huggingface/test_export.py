"""Programs of torch.export, whose padding may stand anywhere."""

import pytest
import torch

from tests.covering import in_turn
from tests.huggingface.samples import IN_ENCODERS
from tests.huggingface.test_padding import ENCODERS, PLACES, batch, outputs, small

pytest.importorskip("transformers", reason="transformers is not installed (extra hf)")

from tupe_fairseq import huggingface as hf
from tupe_fairseq.base.tracing import OLDEST_EXPORTER

pytestmark = pytest.mark.skipif(torch.__version__ < OLDEST_EXPORTER, reason="older exporters fail")
#: Not exported at all, or exported with each length in tests/convert/test_onnx.py.
ELSEWHERE = ("rnn", "pope", "floater", "shaw", "transformer_xl", "deberta", "fire")


def exported(model, ids, mask, **how):
    """The program as a module, traced with these inputs."""
    given = {"input_ids": ids, "attention_mask": mask}
    if isinstance(model, hf.TupeForMultipleChoice):
        given = {name: value[None] for name, value in given.items()}
    return torch.export.export(model, (), given, **how).module()


def first_outputs(model, program, ids, mask):
    """As `outputs`, of the program."""
    if isinstance(model, hf.TupeForMultipleChoice):
        return program(input_ids=ids[None], attention_mask=mask[None])[0]
    out = program(input_ids=ids, attention_mask=mask)[0]
    return out if out.shape[:2] != ids.shape else out[mask.bool()]


@pytest.mark.parametrize(
    ("kind", "name", "traced"),
    [
        *((kind, "tupe_r", side) for kind, side in in_turn(ENCODERS, ("right", "left"))),
        *((hf.TupeForMaskedLM, name, "left") for name in IN_ENCODERS if name not in ELSEWHERE),
    ],
)
@torch.no_grad()
def test_padding_anywhere(kind, name, traced):
    """In a program that was traced with padding on either side."""
    model = small(kind, name)
    program = exported(model, *batch(PLACES[traced], 1))
    for places in PLACES.values():
        ids, mask = batch(places, 1)
        found = first_outputs(model, program, ids, mask)
        torch.testing.assert_close(found, outputs(model, ids, mask), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [hf.TupeModel, hf.TupeForSequenceClassification])
@torch.no_grad()
def test_a_mask_of_one_row(kind):
    model = small(kind, "tupe_r", classifier_pooling="mean")
    ids = torch.arange(4, 20).view(2, -1)
    mask = torch.ones(2, 8, dtype=torch.int64)
    mask[:, :3] = 0
    program = exported(model, ids, mask[:1])
    found = program(input_ids=ids, attention_mask=mask[:1])[0]
    expected = model(ids, attention_mask=mask)[0]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
