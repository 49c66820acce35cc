"""The cores that this process may use, and what reports say of machine, commit and command."""

import os
import platform
import shlex
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def cores() -> int:
    """Number of cores that this process may use; Slurm and containers may restrict them."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processor() -> str:
    """The model of the processor as Linux on x86 names it, its architecture elsewhere."""
    return fact_of_processor("model name") or platform.machine()


def fact_of_processor(*names: str) -> str | None:
    """The value of the first of these names in Linux's description of the processor, or None."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    facts = (line.partition(":") for line in lines)
    return next((fact.strip() for name, _, fact in facts if name.strip() in names), None)


def commit(folder: Path) -> str:
    """Commit of the repository that a folder lies in; a copy without .git has none."""

    def git(*words: str) -> str:
        command = ["git", "--no-optional-locks", "-C", str(folder), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        # `describe --dirty` writes the index: when killed or on a full disk, it leaves its lock.
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("describe", "--always") + ("-dirty" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def shown(words: Iterable[object], places: Mapping[str, Path]) -> str:
    """A command line without absolute paths, which say more about a machine than about a run.

    A path below the repository becomes relative to it, a path in one of the `places` begins with
    that place's name, and of any other absolute path the last part remains.
    """
    return shlex.join(_relative(str(word), places) for word in words)


def _relative(word: str, places: Mapping[str, Path]) -> str:
    # The path of a run's folder may hold a "=" too.
    key, equals, value = ("", "", word) if Path(word).is_absolute() else word.partition("=")
    path = Path(value)
    if not path.is_absolute():
        return word
    for name, folder in {**places, "": ROOT}.items():
        if path.is_relative_to(folder.absolute()):
            path = Path(name, path.relative_to(folder.absolute()))
            return f"{key}{equals}{path}"
    return f"{key}{equals}{path.name}"
