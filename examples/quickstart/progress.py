"""How far trainings are, read from their logs."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from examples.shared.logs import read_log

#: Seconds between two looks at the logs.
INTERVAL = 0.5


def validations(log: Path) -> dict[int, dict[str, Any]]:
    """The validations of a log by the number of updates.

    A resumed training repeats updates and gets the same results.
    """
    found = [entry for kind, entry in read_log(log) if kind == "valid"]
    return {int(entry["valid_num_updates"]): entry for entry in found}


def describe(validation: Mapping[str, Any]) -> str:
    """A validation in a few words."""
    if "valid_accuracy" in validation:
        return f"{validation['valid_accuracy']:.1f} % correct"
    return f"{validation['valid_loss']:.2f} bits per masked token"


@contextmanager
def telling(logs: Mapping[str, Path], total: int) -> Iterator[None]:
    """Print each new validation of the logs while the block runs.

    Args:
        logs: of the trainings, by name.
        total: number of updates of each.
    """
    told = {name: set(validations(log)) for name, log in logs.items()}
    ended = threading.Event()

    def tell() -> None:
        for name, log in logs.items():
            for updates, entry in validations(log).items():
                if updates not in told[name]:
                    told[name].add(updates)
                    line = f"   {name}: {updates} of {total} updates, {describe(entry)}"
                    print(line, flush=True)

    def watch() -> None:
        while not ended.wait(INTERVAL):
            tell()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        tell()
