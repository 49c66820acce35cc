"""scripts/average_checkpoints.py: means of parameters, in a checkpoint that fairseq reads."""

import shutil

import pytest
import torch

from scripts.average_checkpoints import main
from tupe_fairseq import CheckpointError, TupeRobertaModel
from tupe_fairseq.fairseq.checkpoints.reading import read_checkpoint


def test_average(toy_checkpoint, toy_masked_lm_data, tmp_path):
    state = read_checkpoint(toy_checkpoint)
    paths = [tmp_path / f"{i}.pt" for i in range(3)]
    for number, path in enumerate(paths):
        model = {name: value + number for name, value in state["model"].items()}
        torch.save(state | {"model": model}, path)
    folder = tmp_path / "averaged"
    main([*map(str, paths), "--out", str(folder / "model.pt")])
    averaged = read_checkpoint(folder / "model.pt")
    assert "last_optimizer_state" in state
    assert "last_optimizer_state" not in averaged
    for name, value in state["model"].items():
        torch.testing.assert_close(averaged["model"][name], value + 1)
    shutil.copy(toy_masked_lm_data / "dict.txt", folder)
    loaded = TupeRobertaModel.from_pretrained(folder).model.state_dict()
    name = "encoder.sentence_encoder.layers.0.fc1.weight"
    torch.testing.assert_close(loaded[name], state["model"][name] + 1)


def test_another_model(toy_checkpoint, toy_language_model, tmp_path):
    out = tmp_path / "model.pt"
    with pytest.raises(CheckpointError, match=r"is not of the model of .*: [0-9]+ missing"):
        main([str(toy_checkpoint), str(toy_language_model), "--out", str(out)])
    assert not out.exists()
