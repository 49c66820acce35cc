"""--attention-window and --global-every: their layers, and what is refused."""

from argparse import Namespace

import pytest
from omegaconf import OmegaConf

from tests.toy_data import Task
from tupe_fairseq import UsageError, build_position_encoding
from tupe_fairseq.fairseq.arguments.completion import completed
from tupe_fairseq.fairseq.arguments.roberta import ROBERTA
from tupe_fairseq.fairseq.arguments.training import TrainingSettings
from tupe_fairseq.fairseq.models.tupe_roberta import TupeRobertaModel
from tupe_fairseq.fairseq.models.tupe_transformer import TupeTransformerModel
from tupe_fairseq.fairseq.models.tupe_transformer_lm import TupeTransformerLM

LENGTH = 9


def test_every_third_layer_is_global():
    shape = build_position_encoding("rope", 8, 2, 9, attention_window=3, global_every=3).shape
    assert [shape.window_at(layer) for layer in range(5)] == [None, 3, 3, None, 3]


MODELS = (TupeRobertaModel, TupeTransformerModel, TupeTransformerLM)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"attention_window": 0}, "--attention-window is 0, but must be at least 1"),
        ({"attention_window": 2, "global_every": 1}, "--global-every is 1, but must be"),
        ({"attention_window": 2, "global_every": -1}, "--global-every is -1, but must"),
        ({"global_every": 3}, "is 3, but without --attention-window all layers"),
    ],
)
def test_what_has_no_meaning_is_refused(given, message):
    """By models and by encodings, in one line."""
    calls = [lambda: build_position_encoding("rope", 8, 2, LENGTH, **given)]
    for model in MODELS:
        for args in (Namespace(**given), OmegaConf.create(given)):
            calls.append(lambda model=model, args=args: model.build_model(args, Task()))
    for call in calls:
        with pytest.raises(UsageError, match=message) as raised:
            call()
        assert "\n" not in str(raised.value)


WINDOWS = {"attention_window": 2, "global_every": 3}
ROTATIONS = {"position_encoding": "rope", "rope_skip_every": 3}


@pytest.mark.parametrize(
    ("given", "kept", "message"),
    [
        # Layers 0, 3, ... are global; those that remain are counted anew.
        (WINDOWS, "0,1,2", None),
        (WINDOWS, "0,2,4", None),
        (WINDOWS, "0,3", "is 0,3, but with"),
        (WINDOWS, "1,2", "is 1,2, but with"),
        # Layers 2, 5, ... do not rotate.
        (ROTATIONS, "0,1,5", None),
        (ROTATIONS, "0,1,3,4", ".*with --rope-skip-every 3"),
        (ROTATIONS, "0,x", ".*must be numbers"),
    ],
)
def test_pruning_keeps_layers_of_each_kind(given, kept, message):
    args = Namespace(**given, encoder_layers_to_keep=kept)
    if message is None:
        assert (
            completed(ROBERTA, args, TrainingSettings.read(args), Task()).encoder_layers_to_keep
            == kept
        )
        return
    with pytest.raises(UsageError, match=f"^--encoder-layers-to-keep {message}"):
        completed(ROBERTA, args, TrainingSettings.read(args), Task())
