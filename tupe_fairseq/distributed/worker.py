"""One of the processes that `launch` starts: fairseq-train between two checks.

N processes of fairseq can each train a model of their own, or nothing, and exit with status 0. The
processes therefore verify before training that all have joined, and after training that updates
were made. On GPUs, fairseq's trainer also compares the gradient norms of
the processes at every update.
"""

import logging
import os
import sys
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
from . import LAUNCHER, end_with
from .resume import resumed
from .save_dir import alone_in


def rank_flags(flags: list[str], environment: dict[str, str]) -> list[str]:
    """The flags for the rank of this process among those that torchrun started.

    Args:
        flags: of fairseq-train, the same in all processes.
        environment: with torchrun's RANK, WORLD_SIZE, LOCAL_RANK.
    """
    own = [
        *("--distributed-init-method", "env://", "--distributed-no-spawn"),
        *("--distributed-rank", environment["RANK"]),
        *("--distributed-world-size", environment["WORLD_SIZE"]),
    ]
    if "--cpu" not in flags and torch.cuda.is_available():
        own += ["--distributed-backend", "nccl", "--device-id", environment["LOCAL_RANK"]]
    else:
        # fairseq's other data-parallel wrappers need CUDA.
        own += ["--cpu", "--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp"]
    return [*flags, *own]


def train_together(cfg: DictConfig) -> None:
    """Run fairseq-train's `main` between two checks.

    Raises:
        UsageError: processes are missing, no update was made, or another training uses --save-dir.
    """
    world = cfg.distributed_training.distributed_world_size
    check_all_joined(world)
    writes = dist.get_rank() == 0 and not cfg.checkpoint.no_save
    with (
        alone_in(cfg.checkpoint.save_dir) if writes else nullcontext(),
        resumed(cfg) as before,
    ):
        fairseq_train.main(cfg)
    total = updates_made()
    if not total:
        raise UsageError(
            "nothing was trained: no update was made; check the sizes of the data and of the "
            "batches, --max-epoch, --max-update and --stop-min-lr."
        )
    if dist.get_rank() == 0:
        print(f"{world} ranks trained together: {total - before} updates, {total} in all")


def updates_made() -> int:
    """Updates of the model trained last, including those before its checkpoint.

    fairseq's trainer logs the number after each update, and when it loads a checkpoint.
    """
    # `metrics.get_meter` would return the meters of the checkpoint instead of those in use.
    meters = metrics.get_active_aggregators()[0]
    return int(meters["num_updates"].val) if "num_updates" in meters else 0


def check_all_joined(world: int) -> None:
    """Verify that all processes have joined, by a sum over them.

    Raises:
        UsageError: the number differs from that of the processes started.
    """
    together = 1
    if dist.is_initialized():
        ones = torch.ones((), device="cuda" if dist.get_backend() == "nccl" else "cpu")
        dist.all_reduce(ones)
        together = int(ones.item())
    if together != world:
        raise UsageError(f"{world} processes were started, but {together} train together.")


def main(flags: list[str]) -> None:
    """One rank of training."""
    # It imports --user-dir, which it reads from the arguments of this process.
    parser = options.get_training_parser()
    parser.prog = "fairseq-train"
    arguments = options.parse_args_and_arch(parser, rank_flags(flags, dict(os.environ)))
    try:
        with commands.running("train"):
            fairseq_distributed.call_main(
                convert_namespace_to_omegaconf(arguments), train_together
            )
    finally:
        # Otherwise Gloo's threads would abort the process when it exits.
        if dist.is_initialized() and dist.get_backend() == "gloo":
            dist.destroy_process_group()


def log_as_fairseq_train() -> None:
    """Log on stdout in the format of fairseq-train; importing fairseq has set another one."""
    logging.basicConfig(
        format="%(asctime)s | %(levelname)s | %(name)s | %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
        level=os.environ.get("LOGLEVEL", "INFO").upper(),
        stream=sys.stdout,
        force=True,
    )


def end(status: str | int | None) -> None:
    """Exit like `sys.exit`, but without data-loading threads, which would abort the process."""
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
