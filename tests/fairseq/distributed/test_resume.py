"""The place in the data where another number of processes goes on."""

import pytest
import torch
import torch.distributed as dist
from omegaconf import OmegaConf

from tests.covering import covering
from tupe_fairseq.fairseq.distributed.resume import resumed


@pytest.fixture
def rank():
    """A group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("rank")
@pytest.mark.parametrize(
    ("rounds", "then", "now"), covering([0, 1, 3, 10], [1, 2, 3, 8], [1, 2, 3, 4, 7])
)
def test_no_batch_is_skipped_and_less_than_a_round_repeated(
    rounds, then, now, toy_checkpoint, tmp_path
):
    """Processes read the batches of an epoch in turn, one each in a round."""
    state = torch.load(toy_checkpoint, weights_only=True)
    state["extra_state"]["train_iterator"]["iterations_in_epoch"] = rounds
    state["cfg"]["distributed_training"]["distributed_world_size"] = then
    torch.save(state, tmp_path / "checkpoint.pt")
    checkpoint = {
        "save_dir": str(tmp_path / "out"),
        "restore_file": str(tmp_path / "checkpoint.pt"),
        **dict.fromkeys(("finetune_from_model", "reset_dataloader", "continue_once")),
    }
    ranks = {"distributed_world_size": now}
    cfg = OmegaConf.create({"checkpoint": checkpoint, "distributed_training": ranks})
    with resumed(cfg):
        found = torch.load(cfg.checkpoint.restore_file, weights_only=True)
    place = found["extra_state"]["train_iterator"]["iterations_in_epoch"]
    read = rounds * then
    assert read - now < place * now <= read
    assert [path.name for path in (tmp_path / "out").glob("*")] == [], "the copy is removed"
