"""How far trainings are, read from their logs: bars on a terminal, lines elsewhere."""

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tqdm import tqdm

from examples.shared.jobs import read_log

FORMAT = "{desc} {percentage:3.0f}% |{bar}| {n}/{total}, {remaining} left{postfix}"


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


class Progress(AbstractContextManager):
    """Shows progress at each `update()`.

    Args:
        logs: of the trainings, by name.
        total: number of updates of each.
    """

    def __init__(self, logs: Mapping[str, Path], total: int) -> None:
        self.logs, self.total = logs, total

    def update(self) -> None:
        """Show what the logs say now."""

    def __exit__(self, *error: object) -> None:
        self.update()


class Lines(Progress):
    """A line on standard output for each new validation."""

    def __init__(self, logs: Mapping[str, Path], total: int) -> None:
        super().__init__(logs, total)
        self._told = {name: set(validations(log)) for name, log in logs.items()}

    def update(self) -> None:
        for name, log in self.logs.items():
            for updates, entry in validations(log).items():
                if updates not in self._told[name]:
                    self._told[name].add(updates)
                    done = f"{updates} of {self.total} updates"
                    print(f"   {name}: {done}, {describe(entry)} (validation)", flush=True)


class Bars(Progress):
    """A bar on standard error for each training."""

    def __init__(self, logs: Mapping[str, Path], total: int) -> None:
        super().__init__(logs, total)
        width = max(map(len, logs))
        self._bars = {
            name: tqdm(
                total=total,
                initial=_updates(log),
                desc=f"   {name:{width}}",
                unit=" updates",
                position=place,
                file=sys.stderr,
                dynamic_ncols=True,
                bar_format=FORMAT,
            )
            for place, (name, log) in enumerate(logs.items())
        }

    def update(self) -> None:
        for name, bar in self._bars.items():
            if found := validations(self.logs[name]):
                bar.set_postfix_str(describe(found[max(found)]), refresh=False)
            bar.update(_updates(self.logs[name]) - bar.n)
            bar.refresh()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        for bar in self._bars.values():
            bar.close()


def _updates(log: Path) -> int:
    """Number of updates that a log tells of; 0 without any."""
    names = {"train_inner": "num_updates", "valid": "valid_num_updates"}
    entries = ((names.get(kind), entry) for kind, entry in read_log(log))
    return max((int(entry[name]) for name, entry in entries if name in entry), default=0)
