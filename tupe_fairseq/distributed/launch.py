"""Start N training processes on this machine; if one fails, stop all of them.

    python -m tupe_fairseq.distributed.launch N [TORCHRUN_FLAG... --] FLAG...

FLAG... are flags of fairseq-train. The processes find each other by torchrun's rendezvous. For
several machines, run the command on each of them with --nnodes and --rdzv-endpoint.
"""

import logging
import os
import signal
import sys

import torch
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.elastic.rendezvous import RendezvousError
from torch.distributed.run import get_args_parser, run

from ..errors import ConfigurationError, UsageError, one_line_endings
from ..machine import cores
from . import LAUNCHER

WORKER = "tupe_fairseq.distributed.worker"
#: Flags that each worker sets for its own process.
OWN_FLAGS = (
    *("--distributed-world-size", "--distributed-rank", "--distributed-init-method"),
    *("--distributed-no-spawn", "--distributed-backend", "--distributed-port", "--device-id"),
)
#: Torchrun's flags for a single machine: a rendezvous on any free port.
ALONE = (
    *("--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"),
    *("--rdzv-id", f"{os.getpid()}", "--local-addr", "localhost"),
)
RESUME = "the same command resumes from the last checkpoint, if there is one."


def split(argv: list[str]) -> tuple[int, list[str], list[str]]:
    """Split the arguments into N, flags of torchrun, and flags of fairseq-train.

    Raises:
        ConfigurationError: N is invalid, flags of fairseq-train are missing, or one is given that
            each worker sets for itself.
    """
    if not argv or not argv[0].isascii() or not argv[0].isdigit() or int(argv[0]) < 1:
        raise ConfigurationError(
            f"N is {argv[0] if argv else 'missing'!r}, but must be the number of processes on "
            "this machine: train_distributed.sh N [TORCHRUN_FLAG... --] FLAG..."
        )
    rest = argv[1:]
    cut = rest.index("--") if "--" in rest else 0
    torchrun, flags = rest[:cut], rest[cut + 1 :] if "--" in rest else rest
    if not flags:
        raise ConfigurationError("nothing to train: give the arguments of fairseq-train after N.")
    for flag in flags:
        if flag.split("=")[0] in OWN_FLAGS:
            raise ConfigurationError(
                f"{flag.split('=')[0]} is set from N and the rendezvous; remove it."
            )
    return int(argv[0]), torchrun, flags


def check_devices(processes: int, flags: list[str]) -> None:
    """Each process needs a GPU of its own, or --cpu.

    Raises:
        ConfigurationError: there are GPUs, but fewer than processes.
    """
    devices = torch.cuda.device_count()
    if "--cpu" not in flags and 0 < devices < processes:
        raise ConfigurationError(
            f"N is {processes}, but this machine has {devices} GPU: give that number, or --cpu."
        )


def launch(argv: list[str]) -> None:
    """Run the processes and wait for them.

    Raises:
        ConfigurationError: the arguments are invalid.
        UsageError: a process failed, the rendezvous failed, or a signal was received.
    """
    processes, torchrun, flags = split(argv)
    check_devices(processes, flags)
    # No more threads than cores: they would compete.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores() // processes)))
    os.environ[LAUNCHER] = str(os.getpid())
    command = [*(torchrun or ALONE), f"--nproc-per-node={processes}", "-m", WORKER, *flags]
    arguments = get_args_parser().parse_args(command)
    # torchrun reports failures as tables of tracebacks; this program prints one line.
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    try:
        run(arguments)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        raise UsageError(_explain(rank, failure)) from error
    except SignalException as error:
        raise UsageError(f"stopped by {error.sigval.name}, with all ranks; {RESUME}") from error
    except RendezvousError as error:
        raise UsageError(
            f"rendezvous failed at {arguments.rdzv_endpoint} ({type(error).__name__}): name a "
            "host and a free port on it, and start the command on all --nnodes machines."
        ) from error
    except (RuntimeError, ValueError, ConnectionError) as error:
        raise UsageError(f"the processes could not be started: {error}.") from error


def _explain(rank: int, failure: ProcessFailure) -> str:
    if failure.exitcode < 0:
        name = signal.Signals(-failure.exitcode).name
        how = f"was killed by signal {-failure.exitcode} ({name})"
    else:
        how = f"exited with status {failure.exitcode} (see its message above)"
    return f"rank {rank} {how}, so the others were stopped; {RESUME}"


if __name__ == "__main__":
    with one_line_endings():
        launch(sys.argv[1:])
