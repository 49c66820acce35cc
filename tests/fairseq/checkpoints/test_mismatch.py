"""A checkpoint of another encoding or length does not load, and the message names the flag."""

from argparse import Namespace
from pathlib import Path

import pytest
import torch

from tests.toy_data import Task
from tupe_fairseq import TupeRobertaModel, UsageError
from tupe_fairseq.fairseq.arguments.completion import completed
from tupe_fairseq.fairseq.arguments.roberta import ROBERTA
from tupe_fairseq.fairseq.arguments.training import TrainingSettings
from tupe_fairseq.fairseq.arguments.transformers import TRANSFORMER
from tupe_fairseq.fairseq.checkpoints.restoring import check_restored


def build(name, **options):
    options |= {"encoder_layers": 2, "encoder_embed_dim": 8, "encoder_attention_heads": 2}
    return TupeRobertaModel.build_model(Namespace(**options, position_encoding=name), Task(8))


def recorded(path, **settings):
    """A checkpoint that records these settings; returns its path."""
    torch.save({"model": {}, "cfg": {"model": settings}}, path)
    return str(path)


def check(model, arguments, **training):
    """As a training does that starts from the checkpoints named in its settings."""
    complete = completed(
        model, Namespace(**arguments), TrainingSettings.read(Namespace(**arguments)), Task(8)
    )
    options = model.options_with(complete.position_encoding)
    check_restored(TrainingSettings(**training), options, complete)


@pytest.mark.parametrize(
    ("trained", "built"), [("fire", "t5"), ("t5", "fire"), ("rnn", "learned"), ("none", "t5")]
)
def test_another_encoding(trained, built):
    state = build(trained).state_dict()
    with pytest.raises(
        UsageError, match=f"^--position-encoding is '{built}', which has "
    ) as error:
        build(built).load_state_dict(state, strict=True)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["learned", "tupe_a", "tupe_r"])
@pytest.mark.parametrize(("more", "remedy"), [(1, False), (-1, True)])
def test_another_number_of_positions(name, more, remedy):
    state = build(name, max_positions=8 + more).state_dict()
    told = rf"^--max-positions is 8, but the checkpoint has {8 + more} positions: "
    with pytest.raises(UsageError, match=told) as error:
        build(name).load_state_dict(state)
    assert ("--extend-positions" in str(error.value)) == remedy


@pytest.mark.parametrize("tied", [False, True])
def test_another_cls_is_refused_before_positions_are_extended(tied, tmp_path):
    """Otherwise the rows of an untied [CLS] would become positions, or the reverse."""
    path = recorded(tmp_path / "model.pt", position_encoding="tupe_a", tie_cls=not tied)
    now = {"position_encoding": "tupe_a", "tie_cls": tied, "extend_positions": "hierarchical"}
    with pytest.raises(UsageError, match=f"--tie-cls is {tied}, but .* with {not tied}"):
        check(ROBERTA, now, restore_file=path)


@pytest.mark.parametrize(
    ("settings", "encoding"),
    [
        ({"_name": "transformer_iwslt_de_en"}, "sinusoidal"),
        ({"arch": "transformer", "no_token_positional_embeddings": True}, "none"),
        ({"arch": "transformer_lm", "decoder_learned_pos": True}, "learned"),
    ],
)
def test_stock_checkpoints_have_an_encoding(settings, encoding, tmp_path):
    """Those without parameters of positions would load with any other such encoding."""
    path = recorded(tmp_path / "stock.pt", **settings)
    check(TRANSFORMER, {"position_encoding": encoding}, restore_file=path)
    with pytest.raises(UsageError, match=f"is 'rope', but .* with '{encoding}'"):
        check(TRANSFORMER, {"position_encoding": "rope"}, restore_file=path)


TOEPLITZ = {"extend_positions": "toeplitz", "trained_positions": 4}


@pytest.mark.parametrize(
    ("name", "trained", "now", "parts"),
    [
        (
            "rope",
            {"rope_theta": 500.0, "rope_values": True},
            {"attention_window": 4},
            [
                "--attention-window is 4, but was None (to keep it, leave out --attention-window)",
                "--rope-theta is 10000.0, but was 500.0 (to keep it, pass --rope-theta 500.0)",
                "--rope-values is False, but was True (to keep it, pass --rope-values)",
            ],
        ),
        ("alibi", {}, {"alibi_sides": True}, ["was False (to keep it, pass --no-alibi-sides)"]),
        (
            "t5",
            {"max_distance": None},
            {"max_distance": 64},
            ["--max-distance is 64, but was 128"],
        ),
        ("rope", {"rope_scaling": "ntk"}, {}, ["--rope-scaling is None, but was 'ntk'"]),
        (
            "tupe_r",
            TOEPLITZ,
            {**TOEPLITZ, "toeplitz_far": 2},
            ["--toeplitz-far is 2, but was None"],
        ),
        (
            "rope",
            {"encoder_attention_heads": 2, "activation_fn": "relu"},
            {},
            ["was 2 (to keep it, pass --encoder-attention-heads 2)", "--activation-fn relu"],
        ),
        ("rope", {"rope_theta": 500}, {"rope_theta": 500.0}, None),
        ("rope", {}, {"rope_scaling": "ntk", "rope_original_positions": 4}, None),
        ("rope", {}, {"attention_backend": "eager"}, None),
        ("tupe_r", {}, {**TOEPLITZ, "toeplitz_far": 2, "toeplitz_slope": 2.0}, None),
    ],
)
def test_options_that_differ_are_named_in_one_warning(name, trained, now, parts, tmp_path, caplog):
    """Those that longer texts need may change, unless the checkpoint was trained with them."""
    path = recorded(tmp_path / "checkpoint_last.pt", position_encoding=name, **trained)
    check(ROBERTA, {"position_encoding": name, **now}, save_dir=str(tmp_path))
    assert len(caplog.messages) == (parts is not None)
    for part in parts or []:
        assert part in caplog.text
        assert caplog.messages[0].startswith(f"{path} was trained with other options")


def test_a_run_that_goes_on_is_compared_with_its_own_checkpoint(tmp_path, caplog):
    """Not again with that of --finetune-from-model; stock fairseq's record no options."""
    rope = {"position_encoding": "rope"}
    start = recorded(tmp_path / "start.pt", rope_theta=500.0, **rope)
    stock = recorded(tmp_path / "stock.pt", dropout=0.1)
    last = recorded(tmp_path / "checkpoint_last.pt", rope_theta=10000.0, **rope)
    for source in (start, start, stock):
        training = {"save_dir": str(tmp_path), "finetune_from_model": source}
        check(ROBERTA, rope | {"rope_theta": 9.0}, **training)
        Path(last).unlink(missing_ok=True)
    was = ["was 10000.0" in caplog.messages[0], "was 500.0" in caplog.messages[1]]
    assert (was, len(caplog.messages)) == ([True, True], 2)
