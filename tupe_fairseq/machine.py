"""The cores that this process may use, and what reports say of the machine and the commit."""

import os
import platform
import subprocess
from pathlib import Path


def cores() -> int:
    """Number of cores that this process may use; Slurm and containers may restrict them."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processor() -> str:
    """The model of the processor as Linux on x86 names it, its architecture elsewhere."""
    return fact_of_processor("model name") or platform.machine()


def fact_of_processor(*names: str) -> str | None:
    """What Linux says of the processor under the first of these names that it knows, if any."""
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
