"""Resume with a different number of processes at the same position in the data.

A checkpoint holds the number of batches that one process has read in this epoch. fairseq uses that
number for any number of processes: it would repeat or skip batches, or fail if fewer are left.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from omegaconf import DictConfig

from ..arguments.training import TrainingSettings
from ..checkpoints.reading import read_checkpoint, recorded_settings

#: In --save-dir during a training; after a kill, the next training overwrites it.
COPY = ".restored.pt"


@contextmanager
def resumed(cfg: DictConfig) -> Iterator[None]:
    """Inside the block, fairseq resumes at the position in the data that the checkpoint records.

    If another number of processes wrote the checkpoint, fairseq's settings are changed to name a
    recounted copy of it in --save-dir, which is removed at the end.

    Raises:
        CheckpointError: the checkpoint is damaged, of another kind, or would run code.
    """
    state = _recounted(TrainingSettings.read(cfg).restored_file, cfg)
    if state is None:
        yield
        return
    copy = Path(cfg.checkpoint.save_dir, COPY)
    writes = dist.get_rank() == 0
    if writes:
        copy.parent.mkdir(parents=True, exist_ok=True)
        torch.save(state, copy)
    # Its tensors are mapped from the file.
    del state
    dist.barrier()
    # fairseq does not take both flags together.
    cfg.checkpoint.restore_file = str(copy)
    cfg.checkpoint.finetune_from_model = None
    try:
        yield
    finally:
        if writes:
            copy.unlink(missing_ok=True)


def _recounted(path: Path, cfg: DictConfig) -> dict[str, Any] | None:
    """The state of a checkpoint with another number of batches; None if its own is right."""
    if not path.is_file() or cfg.checkpoint.reset_dataloader:
        return None
    state = read_checkpoint(path)
    place = (state.get("extra_state") or {}).get("train_iterator") or {}
    batches = place.get("iterations_in_epoch", 0)
    now = cfg.distributed_training.distributed_world_size
    before = recorded_settings(state, "distributed_training", path)
    then = before.get("distributed_world_size") or now
    if then == now or not batches:
        return None
    # Processes take batches in turn; an incomplete round is repeated.
    place["iterations_in_epoch"] = batches * then // now
    return state
