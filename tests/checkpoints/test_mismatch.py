"""A checkpoint of one encoding does not load as another, and the message names both."""

from argparse import Namespace

import pytest
import torch

from tests import toy_data
from tupe_fairseq import TupeRobertaModel, UsageError
from tupe_fairseq.arguments.roberta import ROBERTA
from tupe_fairseq.arguments.specification import completed
from tupe_fairseq.checkpoints.restoring import check_restore_file

DICTIONARY = toy_data.word_dictionary()


class Task:
    """As much of a task as building a model needs."""

    source_dictionary = target_dictionary = DICTIONARY

    def max_positions(self):
        return 8


def build(name, **options):
    sizes = {"layers": 2, "embed_dim": 8, "ffn_embed_dim": 8, "attention_heads": 2}
    own = {f"encoder_{key}": value for key, value in sizes.items()}
    return TupeRobertaModel.build_model(
        Namespace(**own, **options, position_encoding=name), Task()
    )


@pytest.mark.parametrize(
    ("trained", "built"),
    [
        ("kerple_log", "kerple_power"),
        ("kerple_power", "kerple_log"),
        ("fire", "t5"),
        ("t5", "fire"),
        ("rnn", "learned"),
        ("fire", "rnn"),
        ("rnn", "kerple_log"),
        ("cape", "fire"),
    ],
)
def test_another_encoding(trained, built):
    state = build(trained).state_dict()
    with pytest.raises(UsageError) as raised:
        build(built).load_state_dict(state, strict=True)
    message = str(raised.value)
    assert f"--position-encoding is '{built}', but the checkpoint's encoding is" in message
    assert trained in message
    assert "\n" not in message


@pytest.mark.parametrize("name", ["tupe_a", "tupe_r"])
@pytest.mark.parametrize("tied", [False, True])
def test_one_position_more_is_not_called_another_cls(name, tied):
    state = build(name, tie_cls=tied, max_positions=9).state_dict()
    with pytest.raises(
        UsageError, match=r"^--max-positions is 8, but the .* 9 positions: "
    ) as raised:
        build(name, tie_cls=tied).load_state_dict(state)
    # A table of tupe_a alone cannot tell.
    assert ("or --tie-cls is True" in str(raised.value)) == (name == "tupe_a" and tied)


@pytest.mark.parametrize("tied", [False, True])
def test_another_cls(tied):
    state = build("tupe_r", tie_cls=not tied).state_dict()
    with pytest.raises(UsageError, match=rf"^--tie-cls is {tied}, but .* with {not tied}\.$"):
        build("tupe_r", tie_cls=tied).load_state_dict(state)


@pytest.mark.parametrize("tied", [False, True])
def test_another_cls_is_refused_before_positions_are_extended(tied, tmp_path):
    """Otherwise the rows of an untied [CLS] would become positions, or the reverse."""
    recorded = {"position_encoding": "tupe_a", "tie_cls": not tied}
    torch.save({"model": {}, "cfg": {"model": recorded}}, tmp_path / "model.pt")
    given = Namespace(position_encoding="tupe_a", tie_cls=tied, extend_positions="hierarchical")
    args = Namespace(restore_file=str(tmp_path / "model.pt"), save_dir=str(tmp_path))
    with pytest.raises(UsageError, match=f"--tie-cls is {tied}, but .* with {not tied}"):
        check_restore_file(args, completed(ROBERTA, given, Task()))
