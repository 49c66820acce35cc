"""Processes of a pool, which end with the program that has started it."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from tupe_fairseq import UsageError
from tupe_fairseq.fairseq.distributed import end_with

#: Computes a function for each job, in any process; yields its results in the order of the jobs.
Results = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]


@contextmanager
def pool(
    workers: int, start: Callable[..., object] | None = None, *given: Any
) -> Iterator[Results]:
    """A pool of processes; after an error or an interruption, they are stopped within their jobs.

    Args:
        workers: number of processes.
        start: called in each process before its first job.
        *given: arguments of `start`.

    Raises:
        UsageError: a process was killed.
    """
    others = set(multiprocessing.active_children())
    threads = set(threading.enumerate())
    processes = ProcessPoolExecutor(workers, None, _begin, (os.getpid(), start, given))

    def results(function: Callable[[Any], Any], jobs: Iterable[Any]) -> Iterator[Any]:
        for future in [processes.submit(function, job) for job in jobs]:
            yield future.result()

    try:
        yield results
        processes.shutdown()
    except BaseException as error:
        # The thread of the pool forgets jobs that have not begun. If this one did, as the pool's
        # own `map` does, both might do so: Python 3.11 then prints a traceback.
        processes.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        # The thread of the pool closes its pipes; at exit, Python would close them beside it.
        for thread in set(threading.enumerate()) - threads:
            if not thread.daemon:
                thread.join()
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
