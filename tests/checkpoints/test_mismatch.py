"""A checkpoint of another encoding or length does not load, and the message names the flag."""

from argparse import Namespace

import pytest
import torch

from tests.toy_data import Task
from tupe_fairseq import TupeRobertaModel, UsageError
from tupe_fairseq.arguments.completion import completed
from tupe_fairseq.arguments.roberta import ROBERTA
from tupe_fairseq.checkpoints.restoring import check_restore_file


def build(name, **options):
    sizes = {"layers": 2, "embed_dim": 8, "ffn_embed_dim": 8, "attention_heads": 2}
    own = {f"encoder_{key}": value for key, value in sizes.items()}
    return TupeRobertaModel.build_model(
        Namespace(**own, **options, position_encoding=name), Task(8)
    )


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
    args = Namespace(restore_file=str(tmp_path / "model.pt"), save_dir=str(tmp_path))
    with pytest.raises(UsageError, match=f"--tie-cls is {tied}, but .* with {not tied}"):
        check_restore_file(args, completed(ROBERTA, given, Task(8)))
