"""The tour through a model runs from its first cell to its last, on tiny models."""

import re
import runpy
import shutil
from pathlib import Path

import pytest
import torch

from tests import ROOT
from tests.fairseq_commands import finetune, pretrain
from tests.test_readme import write_sentencepiece

TOUR = ROOT / "examples" / "quickstart" / "tour.py"


def test_tour(toy_masked_lm_data, toy_sentence_data, tmp_path, monkeypatch, capsys):
    models = tmp_path / ".quickstart" / "models"
    for name, encoding in (("pretrained", "tupe_r"), ("learned", "learned")):
        flags = ("--position-encoding", encoding, "--max-update", 1)
        trained = pretrain(toy_masked_lm_data, tmp_path / name, *flags)
        put(trained, toy_masked_lm_data, models / name)
    data = toy_sentence_data["single"]
    put(finetune(data, tmp_path / "run", "--num-classes", 2), data, models / "sentiment")
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(TOUR))
    told = capsys.readouterr().out
    assert names["features"].shape == (1, len(names["tokens"]), 32)
    assert len(names["text"]) > 64, "longer than the positions of the checkpoint"
    assert names["rope"].model.args.position_encoding == "rope"
    words = "encoder.sentence_encoder.embed_tokens.weight"
    learned = torch.load(models / "learned" / "model.pt", weights_only=False)["model"]
    assert torch.equal(names["rope"].model.state_dict()[words], learned[words])
    assert names["difference"] < 1e-5
    assert (tmp_path / ".quickstart" / "tour" / "correlations.png").stat().st_size > 1000
    for part in ("parameters: ", "scores of the new head", "features of "):
        assert part in told
    assert re.search(r"mess \. -> (nega|posi)tive with probability (0\.[5-9]|1\.0)\d", told)


def put(checkpoint: Path, data: Path, model: Path) -> None:
    """A folder for `from_pretrained`, as the quickstart makes it."""
    shutil.copytree(data, model)
    shutil.copy(checkpoint, model / "model.pt")
    write_sentencepiece(model / "sentencepiece.bpe.model")


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
