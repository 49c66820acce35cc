"""Processes of a pool, which end with the program that has started it."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from tupe_fairseq import UsageError
from tupe_fairseq.distributed import end_with


@contextmanager
def pool(
    workers: int, start: Callable[..., object] | None = None, *given: Any
) -> Iterator[ProcessPoolExecutor]:
    """A pool of processes; after an error or an interruption, they are stopped within their jobs.

    Args:
        workers: number of processes.
        start: called in each process before its first job.
        *given: arguments of `start`.

    Raises:
        UsageError: a process was killed.
    """
    others = set(multiprocessing.active_children())
    processes = ProcessPoolExecutor(workers, None, _begin, (os.getpid(), start, given))
    try:
        yield processes
        processes.shutdown()
    except BaseException as error:
        # Jobs that have not begun are forgotten first: Python 3.11 prints a traceback for those
        # that are cancelled when processes end. A second shutdown, as by `with`, would undo this.
        processes.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        if isinstance(error, BrokenProcessPool):
            raise UsageError(
                "a process was killed, possibly for lack of memory: reduce --workers."
            ) from error
        raise


def _begin(parent: int, start: Callable[..., object] | None, given: tuple[Any, ...]) -> None:
    """Let only the parent stop this process, and exit when the parent exits.

    A worker does not notice the latter, because it holds both ends of the pool's pipes. It would
    wait forever, and hold the lock of a folder that it has inherited. A KeyboardInterrupt would
    stop one job, and the worker would go on with the next one.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with(parent, every=0.5)
    if start:
        start(*given)
