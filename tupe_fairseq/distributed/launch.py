"""Start N processes on this machine that train together, and end all of them when one ends badly.

    python -m tupe_fairseq.distributed.launch N [TORCHRUN_FLAG... --] FLAG...

FLAG... is what fairseq-train takes. The processes find each other by torchrun's rendezvous; over
several machines, call it on each with --nnodes and --rdzv-endpoint.
"""

from __future__ import annotations

import logging
import os
import signal
import sys

import torch
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.elastic.rendezvous import RendezvousError
from torch.distributed.launcher.api import elastic_launch
from torch.distributed.run import config_from_args, get_args_parser

from ..errors import UsageError, one_line_endings
from . import LAUNCHER

WORKER = "tupe_fairseq.distributed.worker"
#: Set by the worker, each for its own process.
OWN_FLAGS = (
    *("--distributed-world-size", "--distributed-rank", "--distributed-init-method"),
    *("--distributed-no-spawn", "--distributed-backend", "--distributed-port", "--device-id"),
)
#: Torchrun's flags where nothing is said of other machines: meet here, on any free port.
ALONE = (
    *("--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"),
    *("--rdzv-id", f"{os.getpid()}", "--local-addr", "localhost"),
)
GO_ON = "the same command goes on from the last checkpoint, if there is one."


def split(argv: list[str]) -> tuple[int, list[str], list[str]]:
    """Number of processes, flags of torchrun, flags of fairseq-train.

    Raises:
        UsageError: the number is none, nothing to train is named, or a flag is set that must not.
    """
    if not argv or not argv[0].isascii() or not argv[0].isdigit() or int(argv[0]) < 1:
        raise UsageError(
            f"N is {argv[0] if argv else 'missing'!r}, but must be the number of processes on "
            "this machine: train_distributed.sh N [TORCHRUN_FLAG... --] FLAG..."
        )
    rest = argv[1:]
    cut = rest.index("--") if "--" in rest else 0
    torchrun, flags = rest[:cut], rest[cut + 1 :] if "--" in rest else rest
    if not flags:
        raise UsageError("nothing to train: give the arguments of fairseq-train after N.")
    for flag in flags:
        if flag.split("=")[0] in OWN_FLAGS:
            raise UsageError(
                f"{flag.split('=')[0]} follows from N and the rendezvous; leave it out."
            )
    return int(argv[0]), torchrun, flags


def check_devices(processes: int, flags: list[str]) -> None:
    """One GPU a process, or --cpu.

    Raises:
        UsageError: there are GPUs, but fewer.
    """
    devices = torch.cuda.device_count()
    if "--cpu" not in flags and 0 < devices < processes:
        raise UsageError(
            f"N is {processes}, but this machine has {devices} GPU: start as many, or give --cpu."
        )


def launch(argv: list[str]) -> None:
    """Run and wait.

    Raises:
        UsageError: it cannot start, a process ended badly, or a signal came; the message says
            which and how.
    """
    processes, torchrun, flags = split(argv)
    check_devices(processes, flags)
    # As many threads as there are cores: more would wait for each other.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))
    os.environ[LAUNCHER] = str(os.getpid())
    command = [*(torchrun or ALONE), f"--nproc-per-node={processes}", "-m", WORKER, *flags]
    config, entrypoint, arguments = config_from_args(get_args_parser().parse_args(command))
    # It reports failures as tables of tracebacks; ours is one line.
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    try:
        elastic_launch(config, entrypoint)(*arguments)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        raise UsageError(_told(rank, failure)) from error
    except SignalException as error:
        raise UsageError(f"ended by {error.sigval.name}, all ranks too; {GO_ON}") from error
    except RendezvousError as error:
        raise UsageError(
            f"the machines could not meet at {config.rdzv_endpoint} ({type(error).__name__}): "
            "name a host and port that the first of them has free, and start all of --nnodes."
        ) from error
    except (RuntimeError, ValueError, ConnectionError) as error:
        raise UsageError(f"the processes could not meet: {error}.") from error


def _told(rank: int, failure: ProcessFailure) -> str:
    if failure.exitcode < 0:
        name = signal.Signals(-failure.exitcode).name
        how = f"was killed by signal {-failure.exitcode} ({name})"
    else:
        how = f"ended with status {failure.exitcode} (its message stands above)"
    return f"rank {rank} {how}, so the others were ended; {GO_ON}"


if __name__ == "__main__":
    with one_line_endings():
        launch(sys.argv[1:])
