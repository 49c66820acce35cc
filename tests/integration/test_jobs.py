"""examples/shared/jobs.py: jobs side by side end together."""

import threading
import time
from functools import partial

import pytest
from tqdm import tqdm

from examples.shared import jobs
from tupe_fairseq import UsageError


@pytest.fixture
def progress(monkeypatch):
    monkeypatch.setattr(jobs, "_stopped", threading.Event())
    return tqdm(disable=True)


def fail(error: BaseException) -> None:
    """While another job waits for its process."""
    while not jobs._running:
        time.sleep(0.01)
    raise error


def test_an_interruption_ends_the_processes_of_all_jobs(progress):
    ended = []

    def job() -> None:
        try:
            jobs.call(["sleep", "600"])
        except KeyboardInterrupt:
            ended.append("sleep")
            raise

    later = partial(ended.append, "later")
    both = {"a": job, "b": partial(fail, KeyboardInterrupt()), "c": later}
    with pytest.raises(KeyboardInterrupt):
        jobs.side_by_side(both, 2, progress)
    # "c" may have been started in place of "b" before the interruption was known.
    assert "sleep" in ended
    assert not jobs._running
    with pytest.raises(KeyboardInterrupt):
        jobs.call(["true"])


def test_a_failure_lets_running_jobs_end(progress):
    ended = []

    def job() -> None:
        ended.append(jobs.call(["sleep", "0.3"]).returncode)

    both = {"a": job, "b": partial(fail, UsageError("no data"))}
    with pytest.raises(UsageError, match="no data"):
        jobs.side_by_side(both, 2, progress)
    assert ended == [0]
