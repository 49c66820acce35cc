"""Go on with another number of processes at the same place of the data.

A checkpoint counts the batches that one process had in this epoch. fairseq takes that number for
any other of processes: it would train on some batches twice or leave some out, or end in an error
where that many are not left.
"""

from __future__ import annotations

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

#: In --save-dir while a training lasts; a killed one leaves it to be written over.
COPY = ".restored.pt"


@contextmanager
def resumed(cfg: DictConfig) -> Iterator[int]:
    """Restore, inside, from a checkpoint whose place is counted for this number of processes.

    Args:
        cfg: fairseq's settings, which are changed to name a copy of the checkpoint where the
            numbers differ; it lies in --save-dir, and is removed at the end.

    Yields:
        Updates that were made before; 0 where training begins.

    Raises:
        UsageError: the checkpoint is damaged, foreign, or would run code.
    """
    # Until then another training, which this one waits for, may write there.
    dist.barrier()
    path, copy = restored_file(cfg), Path(cfg.checkpoint.save_dir, COPY)
    if not path.is_file():
        yield 0
        return
    updates, state = _dealt_anew(path, cfg)
    if state is None:
        yield updates
        return
    writes = dist.get_rank() == 0
    if writes:
        copy.parent.mkdir(parents=True, exist_ok=True)
        with replacing(copy) as aside:
            torch.save(state, aside)
    # It holds the file that it was read from.
    del state
    dist.barrier()
    # Where there is a checkpoint to go on from, none is named to begin with.
    cfg.checkpoint.restore_file, cfg.checkpoint.finetune_from_model = str(copy), None
    try:
        yield updates
    finally:
        if writes:
            copy.unlink(missing_ok=True)


def _dealt_anew(path: Path, cfg: DictConfig) -> tuple[int, dict[str, Any] | None]:
    """Updates of a checkpoint, and the whole of it where its place must be counted anew."""
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
    # Batches are dealt out in turn; a part of a round is done once more.
    place["iterations_in_epoch"] = batches * then // now
    return updates, state
