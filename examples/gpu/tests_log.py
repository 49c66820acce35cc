"""A plugin of pytest that logs each outcome at once, and skips tests with a logged outcome.

    python -m pytest -p examples.gpu.tests_log FILES

The variable TESTS_LOG names the log, with a JSON object in each line. A test that ends the
process, or hangs, is the last one that was begun. A GPU that a kernel has left broken fails every
test that follows in its process, so the process ends there.
"""

import faulthandler
import json
import os
from pathlib import Path

import pytest

LOG = Path(os.environ.get("TESTS_LOG", "tests.jsonl"))
#: Seconds that a test may take, and the status of a process that ends because the GPU is broken.
LIMIT, BROKEN = 240, 70
SIGNS = ("CUDA error", "AcceleratorError")


def read(log: Path) -> list[dict]:
    """The lines of a log; one that a kill has cut off is left out."""
    found = []
    for line in log.read_text().splitlines() if log.exists() else ():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def outcomes(log: Path) -> dict[str, dict]:
    """The outcome of each test that has one."""
    return {entry["test"]: entry for entry in read(log) if "outcome" in entry}


def begun(log: Path) -> str | None:
    """The test that was begun last, if it has no outcome."""
    tests = [entry["test"] for entry in read(log) if "test" in entry]
    return tests[-1] if tests and tests[-1] not in outcomes(log) else None


def write(log: Path, **entry: object) -> None:
    """Append a line; after a line that was cut off it begins a new one."""
    with log.open("a") as file:
        file.write(f"\n{json.dumps(entry)}" if file.tell() else json.dumps(entry))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what has an outcome, after pytest has applied -m and -k."""
    done = outcomes(LOG)
    left = [item for item in items if item.nodeid not in done]
    write(LOG, collected=len(items))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in done])
    items[:] = left


def pytest_runtest_logstart(nodeid: str) -> None:
    """Log the test; end the process if it hangs."""
    write(LOG, test=nodeid)
    faulthandler.dump_traceback_later(LIMIT, exit=True)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Log the outcome with the first line of the error."""
    if report.when == "call" or not report.passed:
        told = report.longreprtext.strip().splitlines() if report.failed else []
        errors = [line[1:].strip() for line in told if line.startswith("E ")]
        message = (errors or told or [""])[0][:300]
        facts = {"outcome": report.outcome, "seconds": round(report.duration, 3)}
        write(LOG, test=report.nodeid, **facts, message=message)
        if any(sign in report.longreprtext for sign in SIGNS):
            os._exit(BROKEN)


def pytest_runtest_logfinish(nodeid: str) -> None:
    """It did not hang."""
    faulthandler.cancel_dump_traceback_later()
