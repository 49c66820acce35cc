"""What this process may use of the machine, and what reports say of it and of the source code."""

import os
import platform
import re
import subprocess
from pathlib import Path


def cores() -> int:
    """Cores that this process may use; Slurm and containers may leave it some of all."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processor() -> str:
    """The model of the processor as Linux on x86 names it, its architecture elsewhere."""
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1] if found else platform.machine()


def commit(folder: Path) -> str:
    """Commit of the repository that a folder lies in; a copy without .git has none."""
    git = ["git", "-C", str(folder), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
