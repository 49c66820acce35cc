"""Arguments are completed once, in a copy, alike from the command line and from hydra."""

import copy
from argparse import Namespace
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from tests.toy_data import Task, word_dictionary
from tupe_fairseq.base.errors import ConfigurationError
from tupe_fairseq.fairseq.arguments.completion import (
    completed,
    position_options,
    with_architecture,
    write_back,
)
from tupe_fairseq.fairseq.arguments.roberta import ROBERTA
from tupe_fairseq.fairseq.arguments.training import TrainingSettings
from tupe_fairseq.fairseq.arguments.transformers import LANGUAGE_MODEL, TRANSFORMER
from tupe_fairseq.fairseq.models.tupe_roberta import TupeRobertaModel

SPECIFICATIONS = pytest.mark.parametrize(
    "spec", [ROBERTA, TRANSFORMER, LANGUAGE_MODEL], ids=lambda spec: spec.name
)
GIVEN = {
    "position_encoding": "tupe_r",
    "num_buckets": 16,
    "dropout": 0.25,
    "attention_window": 3,
    "global_every": 2,
}


@SPECIFICATIONS
def test_the_command_line_and_hydra_are_completed_alike(spec):
    """In a copy; what is complete stays as it is."""
    flat = Namespace(**GIVEN)
    tree = OmegaConf.create({**GIVEN, "activation_fn": None})
    before = copy.deepcopy((flat, tree))
    complete = completed(spec, flat, TrainingSettings.read(flat), Task())
    assert vars(completed(spec, tree, TrainingSettings.read(tree), Task())) == vars(complete)
    assert (flat, tree) == before
    assert GIVEN.items() <= vars(complete).items()
    # Where position 0 holds no [CLS], it is not untied.
    assert position_options(complete) == {
        "num_buckets": 16,
        "max_distance": 128,
        "tie_cls": spec is not ROBERTA,
        "toeplitz_far": None,
        "toeplitz_slope": 1.0,
        "trained_positions": getattr(complete, spec.lengths[0]),
    }
    for args in (flat, tree):
        write_back(args, complete)
    assert vars(flat) == dict(tree) == vars(complete)
    assert vars(completed(spec, flat, TrainingSettings.read(flat), Task())) == vars(complete)


@SPECIFICATIONS
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"position_encoding": "t6"}, "--position-encoding is 't6'"),
        ({"relative_clip": 3}, "--relative-clip is 3, but --position-encoding tupe_r"),
        ({"tie_cls": "no"}, "--tie-cls must be true or false, but is 'no'"),
        ({"num_buckets": 32.0}, "--num-buckets must be a whole number, but is 32.0"),
        ({"num_buckets": True}, "--num-buckets must be a whole number, but is True"),
        ({"attention_window": "64"}, "--attention-window must be a whole number, but is '64'"),
        (
            {"position_encoding": "rope", "rope_theta": "big"},
            "--rope-theta must be a number, but is 'big'",
        ),
        (
            {"position_encoding": "alibi", "alibi_slopes": 3},
            "--alibi-slopes must be a word, but is 3",
        ),
    ],
)
def test_invalid_arguments(spec, given, message):
    for args in (Namespace(**given), OmegaConf.create(given)):
        with pytest.raises(ConfigurationError, match=message):
            completed(spec, args, TrainingSettings.read(args), Task())


def test_settings_of_a_training_are_read_alike():
    settings = {"data": "folder", "tokens_per_sample": 9}
    saving = {"restore_file": "a.pt", "save_dir": "there"}
    tree = OmegaConf.create({"model": {}, "task": settings, "checkpoint": saving})
    training = TrainingSettings.read(tree.model)
    assert training == TrainingSettings.read(Namespace(**settings, **saving))
    assert training == TrainingSettings(**settings, **saving)
    assert training.restored_file == Path("a.pt")
    assert TrainingSettings(save_dir="there").restored_file == Path("there/checkpoint_last.pt")


def test_interpolations_stay():
    tree = OmegaConf.create({"model": {"dropout": "${rate}"}, "rate": 0.5})
    args = tree.model
    write_back(args, completed(ROBERTA, args, TrainingSettings.read(args), Task()))
    tree.rate = 0.25
    assert args.dropout == 0.25
    assert args.encoder_layers == 12
    # The hub interface can set only what is recorded.
    assert args.load_checkpoint_heads is False


def test_architectures_fill_only_what_is_not_set():
    args = Namespace(encoder_layers=3)
    complete = with_architecture(ROBERTA, "tupe_roberta_tiny", args)
    assert (complete.encoder_layers, complete.encoder_embed_dim) == (3, 128)
    assert vars(args) == {"encoder_layers": 3}


def test_a_model_holds_complete_arguments_and_reads_them_no_more():
    args = Namespace(encoder_layers=1, encoder_embed_dim=8, encoder_attention_heads=2)
    model = TupeRobertaModel.build_model(args, Task()).train()
    assert model.args is args
    assert args.max_positions == args.tokens_per_sample == 40
    del model.args, args
    model(word_dictionary().encode_line("w1 w2", add_if_not_exist=False).long()[None])
