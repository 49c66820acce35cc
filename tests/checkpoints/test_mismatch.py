"""A checkpoint of another encoding or length does not load, and the message names the flag."""

from argparse import Namespace

import pytest
import torch

from tests.toy_data import Task
from tupe_fairseq import TupeRobertaModel, UsageError
from tupe_fairseq.arguments.completion import completed
from tupe_fairseq.arguments.roberta import ROBERTA
from tupe_fairseq.arguments.training import TrainingSettings
from tupe_fairseq.arguments.transformers import TRANSFORMER
from tupe_fairseq.checkpoints.restoring import check_restored


def build(name, **options):
    sizes = {"layers": 2, "embed_dim": 8, "ffn_embed_dim": 8, "attention_heads": 2}
    own = {f"encoder_{key}": value for key, value in sizes.items()}
    return TupeRobertaModel.build_model(
        Namespace(**own, **options, position_encoding=name), Task(8)
    )


def check(model, complete, **training):
    """As a training does that starts from the checkpoints named in its settings."""
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
    recorded = {"position_encoding": "tupe_a", "tie_cls": not tied}
    torch.save({"model": {}, "cfg": {"model": recorded}}, tmp_path / "model.pt")
    given = Namespace(position_encoding="tupe_a", tie_cls=tied, extend_positions="hierarchical")
    complete = completed(ROBERTA, given, Task(8))
    with pytest.raises(UsageError, match=f"--tie-cls is {tied}, but .* with {not tied}"):
        check(ROBERTA, complete, restore_file=str(tmp_path / "model.pt"))


@pytest.mark.parametrize(
    ("recorded", "encoding"),
    [
        ({"_name": "transformer_iwslt_de_en"}, "sinusoidal"),
        ({"arch": "transformer", "no_token_positional_embeddings": True}, "none"),
        ({"arch": "transformer_lm", "decoder_learned_pos": True}, "learned"),
    ],
)
def test_stock_checkpoints_have_an_encoding(recorded, encoding, tmp_path):
    """Those without parameters of positions would load with any other such encoding."""
    torch.save({"model": {}, "cfg": {"model": recorded}}, tmp_path / "stock.pt")
    args = {"restore_file": str(tmp_path / "stock.pt")}
    same, other = (
        completed(TRANSFORMER, Namespace(position_encoding=name), Task())
        for name in (encoding, "rope")
    )
    check(TRANSFORMER, same, **args)
    with pytest.raises(UsageError, match=f"is 'rope', but .* with '{encoding}'"):
        check(TRANSFORMER, other, **args)


TOEPLITZ = {"extend_positions": "toeplitz", "trained_positions": 4}


@pytest.mark.parametrize(
    ("name", "trained", "given", "parts"),
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
        ("rope", {"rope_theta": 500}, {"rope_theta": 500.0}, None),
        ("rope", {}, {"rope_scaling": "ntk", "rope_original_positions": 4}, None),
        ("rope", {"randomize_positions": 16}, {"attention_backend": "eager"}, None),
        ("tupe_r", {}, {**TOEPLITZ, "toeplitz_far": 2, "toeplitz_slope": 2.0}, None),
    ],
)
def test_options_that_differ_are_named_in_one_warning(
    name, trained, given, parts, tmp_path, caplog
):
    """Those that longer texts need may change, unless the checkpoint was trained with them."""
    path = tmp_path / "checkpoint_last.pt"
    torch.save({"model": {}, "cfg": {"model": {"position_encoding": name, **trained}}}, path)
    complete = completed(ROBERTA, Namespace(position_encoding=name, **given), Task(8))
    check(ROBERTA, complete, save_dir=str(tmp_path))
    assert len(caplog.messages) == (parts is not None)
    for part in parts or []:
        assert part in caplog.text
        assert caplog.messages[0].startswith(f"{path} was trained with other options")


def test_a_run_that_goes_on_is_compared_with_its_own_checkpoint(tmp_path, caplog):
    """Not again with that of --finetune-from-model; stock fairseq's record no options."""
    for name, theta in (("start.pt", 500.0), ("checkpoint_last.pt", 10000.0)):
        recorded = {"position_encoding": "rope", "rope_theta": theta}
        torch.save({"model": {}, "cfg": {"model": recorded}}, tmp_path / name)
    torch.save({"model": {}, "cfg": {"model": {"dropout": 0.1}}}, tmp_path / "stock.pt")
    complete = completed(ROBERTA, Namespace(position_encoding="rope", rope_theta=9.0), Task(8))
    start, stock = ({"finetune_from_model": str(tmp_path / f)} for f in ("start.pt", "stock.pt"))
    check(ROBERTA, complete, save_dir=str(tmp_path), **start)
    (tmp_path / "checkpoint_last.pt").unlink()
    check(ROBERTA, complete, save_dir=str(tmp_path), **start)
    check(ROBERTA, complete, save_dir=str(tmp_path), **stock)
    was = ["was 10000.0" in caplog.messages[0], "was 500.0" in caplog.messages[1]]
    assert (was, len(caplog.messages)) == ([True, True], 2)
