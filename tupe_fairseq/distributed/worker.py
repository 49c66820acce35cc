"""One of the processes that `launch` starts: fairseq-train, once it is sure not to be alone.

fairseq can be started in ways in which N processes each train a model of their own, or nothing,
and end with status 0. So each counts the others before training, and its updates after it. On GPUs
fairseq's trainer itself compares the norms of their gradients at every update.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as fairseq_distributed
from fairseq.logging import metrics
from fairseq_cli import train as fairseq_train
from omegaconf import DictConfig

from .. import commands
from ..errors import UsageError, one_line_endings
from . import LAUNCHER
from .resume import resumed
from .save_dir import alone_in


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


def train_together(cfg: DictConfig) -> None:
    """fairseq-train's own `main`, between two checks.

    Raises:
        UsageError: the processes do not train together, nothing was trained, or another training
            is in --save-dir.
    """
    world = cfg.distributed_training.distributed_world_size
    check_company(world)
    writes = dist.get_rank() == 0 and not cfg.checkpoint.no_save
    try:
        with (
            alone_in(cfg.checkpoint.save_dir) if writes else nullcontext(),
            resumed(cfg) as before,
        ):
            fairseq_train.main(cfg)
    except SystemExit as end:
        if end.code:
            raise
        # Nothing was left to train, which has been said.
        return
    total = updates_made()
    if total <= before:
        raise UsageError(
            "nothing was trained: no update was made; look at the sizes of the data and of the "
            "batches, --max-epoch, --max-update and --stop-min-lr."
        )
    if dist.get_rank() == 0:
        print(f"{world} ranks trained together: {total - before} updates, {total} in all")


def updates_made() -> int:
    """Updates of the model that was trained last, those of its checkpoint included.

    fairseq's trainer logs the number after each update, and where it loads a checkpoint.
    """
    # By name it finds meters of the checkpoint, which have taken the place of those that are used.
    everything = metrics.get_active_aggregators()[0]
    return int(everything["num_updates"].val) if "num_updates" in everything else 0


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
    # fairseq imports --user-dir from the words that this process was started with.
    parser = options.get_training_parser()
    parser.prog = "fairseq-train"
    arguments = options.parse_args_and_arch(parser, rank_flags(flags, dict(os.environ)))
    try:
        with commands.running("train"):
            fairseq_distributed.call_main(
                convert_namespace_to_omegaconf(arguments), train_together
            )
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
    end_with(int(os.environ[LAUNCHER]))
    log_as_fairseq_train()
    try:
        with one_line_endings():
            main(sys.argv[1:])
    except SystemExit as error:
        end(error.code)
