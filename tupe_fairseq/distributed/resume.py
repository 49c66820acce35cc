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

from ..checkpoints.reading import read_checkpoint
from ..checkpoints.restoring import progress, restored_file
from ..checkpoints.settings import recorded_settings
from ..files import replacing

#: In --save-dir during a training; after a kill, the next training overwrites it.
COPY = ".restored.pt"


@contextmanager
def resumed(cfg: DictConfig) -> Iterator[int]:
    """Inside the block, fairseq resumes at the position in the data that the checkpoint records.

    Args:
        cfg: fairseq's settings. If another number of processes wrote the checkpoint, they are
            changed to name a recounted copy of it in --save-dir, which is removed at the end.

    Yields:
        Updates made before; 0 for a new training.

    Raises:
        CheckpointError: the checkpoint is damaged, of another kind, or would run code.
    """
    # Before rank 0 has the lock, another training may still write there.
    dist.barrier()
    path, copy = restored_file(cfg), Path(cfg.checkpoint.save_dir, COPY)
    if not path.is_file():
        yield 0
        return
    updates, state = _recounted(path, cfg)
    if state is None:
        yield updates
        return
    writes = dist.get_rank() == 0
    if writes:
        copy.parent.mkdir(parents=True, exist_ok=True)
        with replacing(copy) as aside:
            torch.save(state, aside)
    # Its tensors are mapped from the file.
    del state
    dist.barrier()
    # fairseq does not take both flags together.
    cfg.checkpoint.restore_file, cfg.checkpoint.finetune_from_model = str(copy), None
    try:
        yield updates
    finally:
        if writes:
            copy.unlink(missing_ok=True)


def _recounted(path: Path, cfg: DictConfig) -> tuple[int, dict[str, Any] | None]:
    """The updates of a checkpoint; and its state, recounted, if the numbers differ."""
    state = read_checkpoint(path)
    updates, place = progress(state)
    if cfg.checkpoint.reset_optimizer:
        updates = 0
    batches = place.get("iterations_in_epoch", 0)
    now = cfg.distributed_training.distributed_world_size
    before = recorded_settings(state, "distributed_training", path)
    then = before.get("distributed_world_size") or now
    if then == now or not batches or cfg.checkpoint.reset_dataloader:
        return updates, None
    # Processes take batches in turn; an incomplete round is repeated.
    place["iterations_in_epoch"] = batches * then // now
    return updates, state
