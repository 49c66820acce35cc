"""fairseq-train as one of the processes that torchrun starts, on GPUs or on the CPU.

    torchrun --nproc-per-node N -m tupe_fairseq.fairseq.distributed.worker FLAG...

FLAG... are flags of fairseq-train. Under torchrun, fairseq-train itself runs on GPUs only, and
resumes at another position in the data if N has changed.
"""

import logging
import os
import sys

import torch
import torch.distributed as dist
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as fairseq_distributed
from fairseq_cli import train as fairseq_train
from omegaconf import DictConfig

from ...base.errors import one_line_endings
from .. import commands
from ..models import prepare_process
from . import end_with
from .resume import resumed


def rank_flags(flags: list[str], environment: dict[str, str]) -> list[str]:
    """Flags of fairseq-train for the rank of this process among those that torchrun started.

    `flags` are the same in all processes; the environment has RANK, WORLD_SIZE and LOCAL_RANK.
    """
    of_rank = [
        "--distributed-init-method",
        "env://",
        "--distributed-no-spawn",
        "--distributed-rank",
        environment["RANK"],
        "--distributed-world-size",
        environment["WORLD_SIZE"],
    ]
    if "--cpu" not in flags and torch.cuda.is_available():
        of_rank += ["--distributed-backend", "nccl", "--device-id", environment["LOCAL_RANK"]]
    else:
        # fairseq's other data-parallel wrappers need CUDA.
        of_rank += ["--cpu", "--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp"]
    return [*flags, *of_rank]


def train(cfg: DictConfig) -> None:
    """Run fairseq-train's `main` at the position in the data that the checkpoint records."""
    with resumed(cfg):
        fairseq_train.main(cfg)


def main(flags: list[str]) -> None:
    """One rank of training."""
    # It imports --user-dir, which it reads from the arguments of this process.
    parser = options.get_training_parser()
    parser.prog = "fairseq-train"
    arguments = options.parse_args_and_arch(parser, rank_flags(flags, dict(os.environ)))
    try:
        with commands.running("train"):
            prepare_process()
            fairseq_distributed.call_main(convert_namespace_to_omegaconf(arguments), train)
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


if __name__ == "__main__":
    end_with(os.getppid())
    log_as_fairseq_train()
    try:
        with one_line_endings():
            main(sys.argv[1:])
    except SystemExit as error:
        # `sys.exit` would wait for threads that load data, which would abort the process.
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1 if isinstance(error.code, str) else error.code or 0)
