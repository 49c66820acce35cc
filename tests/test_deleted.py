"""Older checkpoints, configurations and commands with what version 0.3.0 was the last to have."""

import shutil
from argparse import Namespace

import pytest
import torch
from fairseq import options
from omegaconf import OmegaConf

from tests.convert.samples import change_config, refused, run
from tests.toy_data import Task
from tupe_fairseq import TupeRobertaModel
from tupe_fairseq.fairseq.arguments.roberta import ROBERTA
from tupe_fairseq.fairseq.arguments.training import TrainingSettings
from tupe_fairseq.fairseq.checkpoints.restoring import check_restored
from tupe_fairseq.fairseq.commands import running
from tupe_fairseq.position import POSITION_ENCODINGS, known_options, model_options
from tupe_fairseq.position.deleted import ENCODINGS, OPTIONS, SCALINGS

LAST = "tupe_fairseq 0.3.0 was the last version"
#: Settings, and how the message begins.
DELETED = [
    *(({"position_encoding": n}, f"--position-encoding is '{n}', which") for n in ENCODINGS),
    ({"log_scaling_floor": 64}, "--log-scaling-floor is 64, but"),
    ({"dape_width": 8}, "--dape-width is 8, but"),
    ({"randomize_positions": 64}, "--randomize-positions is 64, but"),
    ({"rope_scaling_settings": "{}"}, "--rope-scaling-settings is '{}', but"),
]
deleted = pytest.mark.parametrize(("settings", "told"), DELETED)
#: What older files record of options that have no effect.
WITHOUT_EFFECT = [OPTIONS, dict.fromkeys(OPTIONS)]


def test_nothing_deleted_is_there():
    assert not {*ENCODINGS} & {*POSITION_ENCODINGS}
    there = {*known_options(), *(option.name for option in model_options())}
    assert not OPTIONS.keys() & there


def older(checkpoint, data, folder, settings):
    """A directory with the checkpoint as an older version would have recorded it."""
    folder.mkdir()
    state = torch.load(checkpoint, weights_only=False)
    vars(state["cfg"]["model"]).update(settings)
    torch.save(state, folder / "model.pt")
    shutil.copy(data / "dict.txt", folder)
    return folder


@deleted
def test_checkpoints(toy_checkpoint, toy_masked_lm_data, tmp_path, settings, told):
    """In the hub, in a training that goes on from it, and in a conversion."""
    folder = older(toy_checkpoint, toy_masked_lm_data, tmp_path / "older", settings)
    with refused(told, LAST):
        TupeRobertaModel.from_pretrained(folder)
    training = TrainingSettings(restore_file=str(folder / "model.pt"))
    complete = Namespace(position_encoding="tupe_r")
    with refused(told, LAST):
        check_restored(training, ROBERTA.options_with("tupe_r"), complete)
    with refused(told, LAST):
        run("--to", "huggingface", folder, tmp_path / "out")


@pytest.mark.parametrize("settings", WITHOUT_EFFECT, ids=["defaults", "none"])
def test_checkpoints_without_an_effect_of_what_is_deleted(
    toy_checkpoint, toy_masked_lm_data, tmp_path, settings
):
    folder = older(toy_checkpoint, toy_masked_lm_data, tmp_path / "older", settings)
    assert TupeRobertaModel.from_pretrained(folder).encode is not None
    run("--to", "huggingface", folder, tmp_path / "out", "--check")


@deleted
def test_hydra(settings, told):
    given = OmegaConf.create({"_name": "tupe_roberta", **settings})
    with refused(told, LAST):
        TupeRobertaModel.build_model(given, Task())


@pytest.mark.parametrize("name", SCALINGS)
def test_scalings(toy_checkpoint, toy_masked_lm_data, tmp_path, name):
    scaled = {"position_encoding": "rope", "rope_scaling": name, "rope_scaling_factor": 2.0}
    scaled["trained_positions"] = None
    folder = older(toy_checkpoint, toy_masked_lm_data, tmp_path / "older", scaled)
    with refused(f"--rope-scaling is '{name}', which", LAST):
        TupeRobertaModel.from_pretrained(folder)


@pytest.mark.parametrize("name", OPTIONS)
def test_flags(name):
    """Also with their defaults."""
    flag = f"--{name.replace('_', '-')}"
    words = ["data", "--arch", "tupe_roberta", "--task", "masked_lm", flag, "3"]
    with running("train"), pytest.raises(SystemExit, match=f"^error: {flag} is '3', but {LAST}"):
        options.parse_args_and_arch(options.get_training_parser(), words)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"position_encoding": "urpe"}, "--position-encoding is 'urpe', which"),
        ({"position_options": {"dape_width": 8}}, "--dape-width is 8, but"),
    ],
)
def test_configurations_of_transformers(tmp_path, changes, told):
    """In transformers, and in a conversion from it."""
    samples = pytest.importorskip("tests.huggingface.samples", reason="no transformers")
    samples.masked_lm("learned", vocab_size=45).save_pretrained(tmp_path / "older")
    change_config(tmp_path / "older", changes)
    with refused(told, LAST):
        samples.TupeForMaskedLM.from_pretrained(tmp_path / "older")
    with refused(told, LAST):
        run("--from", "huggingface", tmp_path / "older", tmp_path / "out")


def test_configurations_without_an_effect_of_what_is_deleted(tmp_path):
    samples = pytest.importorskip("tests.huggingface.samples", reason="no transformers")
    model = samples.masked_lm("learned")
    model.save_pretrained(tmp_path)
    change_config(tmp_path, {"position_options": OPTIONS})
    again = samples.TupeForMaskedLM.from_pretrained(tmp_path)
    assert again.config.position_options == {}
    assert torch.equal(again(samples.tokens()).logits, model(samples.tokens()).logits)
