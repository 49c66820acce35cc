"""The tour through a model runs from its first cell to its last, on tiny models."""

import re
import runpy
from pathlib import Path

import pytest
import torch

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
