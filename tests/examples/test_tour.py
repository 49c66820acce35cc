"""The tour through a model runs from its first cell to its last, on tiny models."""

import json
import re
import runpy
from pathlib import Path

import pytest
import torch

from examples.quickstart.notebook import cells_of, execute
from tests import ROOT
from tests.fairseq_commands import parameters

TOUR = ROOT / "examples" / "quickstart" / "tour.py"


def test_tour(in_quickstart, capsys):
    names = runpy.run_path(str(TOUR))
    told = capsys.readouterr().out
    assert names["features"].shape == (1, len(names["tokens"]), 32)
    assert len(names["text"]) > 64, "longer than the positions of the checkpoint"
    assert names["rope"].model.args.position_encoding == "rope"
    words = "encoder.sentence_encoder.embed_tokens.weight"
    learned = parameters(Path(".quickstart/models/learned/model.pt"))
    assert torch.equal(names["rope"].model.state_dict()[words], learned[words])
    assert names["difference"] < 1e-5
    assert (in_quickstart / ".quickstart/tour/correlations.png").stat().st_size > 1000
    for part in ("parameters: ", "scores of the new head", "features of "):
        assert part in told
    assert re.search(r"mess \. -> (nega|posi)tive with probability (0\.[5-9]|1\.0)\d", told)


def test_notebook(in_quickstart):
    """The committed notebook has the tour's cells and their outputs; its cells run in order."""
    committed = json.loads(TOUR.with_suffix(".ipynb").read_text(encoding="utf-8"))
    code = [cell for cell in committed["cells"] if cell["cell_type"] == "code"]
    sources = ["".join(cell["source"]) for cell in code]
    again = "python -m examples.quickstart.notebook, after the quickstart, writes it again."
    assert sources == [source for _, source in cells_of(TOUR.read_text("utf-8"))], again
    names: dict = {}
    kinds = []
    for source, cell in zip(sources, code, strict=True):
        outputs = execute(source, names)
        kinds += [output["output_type"] for output in outputs]
        assert [each["output_type"] for each in cell["outputs"]] == [
            output["output_type"] for output in outputs
        ]
    assert kinds.count("display_data") == 1
    assert kinds.count("stream") == len(code)
    assert names["difference"] < 1e-5


def test_tour_without_models(tmp_path, monkeypatch):
    """In another folder, or before the quickstart: one line, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(TOUR))
    assert ended.value.code == (
        "error: .quickstart/models/pretrained is missing; run the tour in the folder of the "
        "repository, after bash scripts/quickstart.sh."
    )
    assert not list(tmp_path.iterdir())
