"""One of the processes that `launch` starts: fairseq-train, once it is sure not to be alone.

fairseq can be started in ways in which N processes each train a model of their own, or nothing,
and end with status 0. So each counts the others before training, and its updates after it. On GPUs
fairseq's trainer itself compares the norms of their gradients at every update.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as fairseq_distributed
from fairseq.trainer import Trainer
from fairseq_cli import train as fairseq_train

from ..errors import UsageError
from ..models.safe_loading import read_checkpoint


def rank_flags(flags: list[str], environment: dict[str, str]) -> list[str]:
    """The flags that make fairseq-train one rank of those that torchrun started.

    Args:
        flags: of fairseq-train, the same in every process.
        environment: with torchrun's RANK, WORLD_SIZE, LOCAL_RANK.
    """
    own = [
        *("--distributed-init-method", "env://", "--distributed-no-spawn"),
        *("--distributed-rank", environment["RANK"]),
        *("--distributed-world-size", environment["WORLD_SIZE"]),
    ]
    if "--cpu" not in flags and torch.cuda.is_available():
        return [
            *flags,
            *own,
            *("--distributed-backend", "nccl", "--device-id", environment["LOCAL_RANK"]),
        ]
    cpu = [] if "--cpu" in flags else ["--cpu"]
    # fairseq's other wrappers need CUDA.
    return [*flags, *own, *cpu, "--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp"]


def train_together(cfg: Any) -> None:
    """fairseq-train's own `main`, between two checks.

    Raises:
        UsageError: the processes do not train together, nothing was trained, or another training
            is in --save-dir.
    """
    world = cfg.distributed_training.distributed_world_size
    check_company(world)
    writes = dist.get_rank() == 0 and not cfg.checkpoint.no_save
    with alone_in(cfg.checkpoint.save_dir) if writes else nullcontext():
        trainer = train(cfg)
    if trainer is None:
        return
    total = trainer.get_num_updates()
    updates = total - trainer.loaded_updates
    if updates == 0:
        raise UsageError(
            "nothing was trained: no update was made; look at the sizes of the data and of the "
            "batches, --max-epoch, --max-update and --stop-min-lr."
        )
    if dist.get_rank() == 0:
        print(f"{world} ranks trained together: {updates} updates, {total} in all")


def train(cfg: Any) -> RankTrainer | None:
    """Run fairseq-train with our trainer, and return it; none where nothing was left to train."""
    trainers = []

    def build(*args: Any, **kwargs: Any) -> RankTrainer:
        trainers.append(RankTrainer(*args, **kwargs))
        return trainers[-1]

    stock, fairseq_train.Trainer = fairseq_train.Trainer, build
    try:
        fairseq_train.main(cfg)
    except SystemExit as end:
        if end.code:
            raise
        # Which has been said.
        return None
    finally:
        fairseq_train.Trainer = stock
    return trainers[-1]


@contextmanager
def alone_in(folder: str, patience: int = 15) -> Iterator[None]:
    """Keep other trainings that are started like this out of a folder, which is made if need be.

    Args:
        folder: --save-dir.
        patience: seconds to wait; processes that read data outlive a killed training by five.

    Raises:
        UsageError: it cannot be made, or another training is in it.
    """
    try:
        os.makedirs(folder, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise UsageError(f"--save-dir is {folder!r}: {error.strerror}.") from error
    while not _locked(descriptor):
        if patience <= 0:
            os.close(descriptor)
            raise UsageError(
                f"--save-dir is {folder!r}, but another training writes there: wait for its end, "
                "or name another folder."
            )
        patience -= 1
        time.sleep(1)
    try:
        yield
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    """Lock a file or folder until its descriptor is closed, as at the end of the process."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # Some network file systems have no locks.
        pass
    return True


class RankTrainer(Trainer):
    """fairseq's trainer, which goes on at the same place of the data with another number of ranks.

    A checkpoint counts the batches of one rank; fairseq itself would repeat or leave out some, or
    end in an error where that many are not left.
    """

    #: Made before, by the checkpoint's training.
    loaded_updates = 0

    def load_checkpoint(self, filename, *args, **kwargs):
        """As fairseq's; returns the checkpoint's extra state."""
        extra = super().load_checkpoint(filename, *args, **kwargs)
        self.loaded_updates = self.get_num_updates()
        place = (extra or {}).get("train_iterator", {})
        if place.get("iterations_in_epoch"):
            saved = read_checkpoint(filename).get("cfg") or {}
            then = saved.get("distributed_training", {}).get("distributed_world_size")
            ranks = self.data_parallel_world_size
            # Batches are dealt out in turn. A part of a round is done once more.
            place["iterations_in_epoch"] = place["iterations_in_epoch"] * (then or ranks) // ranks
        return extra


def check_company(world: int) -> None:
    """Count the processes by a sum over them.

    Raises:
        UsageError: there are not as many as were started.
    """
    together = 1
    if dist.is_initialized():
        ones = torch.ones((), device=_device())
        dist.all_reduce(ones)
        together = int(ones.item())
    if together != world:
        raise UsageError(f"{world} processes were to train together, but {together} do.")


def _device() -> torch.device:
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")


def end_with(parent: int, every: float = 1.0) -> None:
    """End this process when the launcher is gone, also by SIGKILL, which tells nobody.

    Else it would train on beside the next run, in the same folder.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(every)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main(flags: list[str]) -> None:
    """One rank of training."""
    # For messages in one line, see `tupe_fairseq.errors`.
    sys.argv = ["fairseq-train", *rank_flags(flags, dict(os.environ))]
    parser = options.get_training_parser()
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser))
    try:
        fairseq_distributed.call_main(cfg, train_together)
    finally:
        # Gloo's threads, left running, would abort the process at its end.
        if dist.is_initialized() and dist.get_backend() == "gloo":
            dist.destroy_process_group()


def log_as_fairseq_train() -> None:
    """Its format, on stdout; importing fairseq before it has set another."""
    logging.basicConfig(
        format="%(asctime)s | %(levelname)s | %(name)s | %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
        level=os.environ.get("LOGLEVEL", "INFO").upper(),
        stream=sys.stdout,
        force=True,
    )


def end(status: str | int | None) -> None:
    """End as `sys.exit` does, without waiting for threads that read data: they would abort it."""
    if isinstance(status, str):
        print(status, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1 if isinstance(status, str) else status or 0)


if __name__ == "__main__":
    end_with(os.getppid())
    log_as_fairseq_train()
    try:
        main(sys.argv[1:])
    except UsageError as error:
        end(f"error: {error}")
    except SystemExit as error:
        end(error.code)
