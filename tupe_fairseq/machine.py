"""What this process may use of the machine."""

import os
import platform
import re
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
