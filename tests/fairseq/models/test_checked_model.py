"""Checks that all models make before training, in one place."""

from argparse import Namespace

import pytest
import torch

from tests.toy_data import Task
from tupe_fairseq import TupeRobertaModel, TupeTransformerLM, TupeTransformerModel
from tupe_fairseq.base.errors import CheckpointError, ConfigurationError
from tupe_fairseq.fairseq import commands

every_model = pytest.mark.parametrize(
    "cls", [TupeRobertaModel, TupeTransformerModel, TupeTransformerLM]
)


def arguments(**more) -> Namespace:
    """Arguments of a model of one layer."""
    sides = ("encoder", "decoder")
    sizes = {"layers": 1, "embed_dim": 8, "ffn_embed_dim": 8, "attention_heads": 2}
    own = {f"{side}_{name}": value for side in sides for name, value in sizes.items()}
    own |= {"decoder_input_dim": 8, "decoder_output_dim": 8}
    return Namespace(**own, skip_invalid_size_inputs_valid_test=True, **more)


@every_model
def test_training_checks_the_data(cls, tmp_path):
    (tmp_path / "train.idx").write_bytes(b"cut off")
    (tmp_path / "train.bin").write_bytes(b"")
    cls.build_model(arguments(data=str(tmp_path)), Task(8))
    with commands.running("train"), pytest.raises(SystemExit, match=r"train\.idx is cut off"):
        cls.build_model(arguments(data=str(tmp_path)), Task(8))


@every_model
def test_dropout_is_not_retained(cls):
    model = cls.build_model(arguments(), Task(8))
    generation = Namespace(beam=1, retain_dropout=True, retain_dropout_modules=None)
    with pytest.raises(ConfigurationError, match="--retain-dropout is not supported"):
        model.prepare_for_inference_(Namespace(generation=generation))


@every_model
def test_training_waits_for_the_file_to_restore(cls):
    model = cls.build_model(arguments(restore_file="nowhere.pt"), Task(8))
    tokens = torch.tensor([[0, 5, 6, 2]])
    inputs = {"src_tokens": tokens, "src_lengths": torch.tensor([4])}
    if cls is TupeTransformerModel:
        inputs["prev_output_tokens"] = tokens
    model.eval()(**inputs)
    with pytest.raises(CheckpointError, match=r"'nowhere\.pt'"):
        model.train()(**inputs)
    # A step reads the configuration no more.
    model.args.restore_file = "elsewhere.pt"
    model.load_state_dict(model.state_dict())
    model(**inputs)
