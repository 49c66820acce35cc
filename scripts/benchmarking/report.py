"""Run what is compared, print the tables and write them to files."""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import re
import shlex
import subprocess
import sys
import warnings
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path

import torch

from tupe_fairseq.files import replacing

from .measure import Case

LEGEND = (
    "ms: median over rounds, in each of which all run once, in random order. / NAME: median of "
    "the rounds' ratios to NAME, and their quartiles. MiB: peak memory of a step beyond what was "
    "held before it."
)
INTERRUPTED = 130


def surroundings(args: argparse.Namespace, script: str, argv: list[str] | None) -> dict[str, str]:
    """What the figures depend on."""
    words = sys.argv[1:] if argv is None else argv
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        commit = "unknown"
    return {
        "command": shlex.join(["python", f"scripts/{script}", *words]),
        "device": device_name(args.device),
        "threads": str(torch.get_num_threads()),
        "torch": torch.__version__,
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "commit": commit,
    }


def device_name(device: str) -> str:
    """The GPU, or the processor and its cores."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    try:
        model = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        model = None
    return f"{model[1] if model else platform.machine()}, {os.cpu_count()} cores"


def run(
    cases: Iterable[Case], args: argparse.Namespace, script: str, argv: list[str] | None
) -> int:
    """Measure, print and write; the files hold what is done so far.

    Returns:
        The exit status.
    """
    # fairseq turns every library's debugging output on, and its ways with hydra make that warn.
    logging.getLogger().setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="hydra|fairseq")
    about = surroundings(args, script, argv)
    print("\n".join(f"{key}: {value}" for key, value in about.items()), LEGEND, sep="\n")
    done: list[Case] = []
    for case in cases:
        interrupted = False
        try:
            case.measure(args.device)
        except KeyboardInterrupt:
            interrupted = True
        if case.seconds:
            done.append(case)
            print(f"\n{case.title}: {facts_of(case)}\n{aligned(case.table())}", flush=True)
            write(args, about, done)
        if interrupted:
            print("interrupted", file=sys.stderr)
            return INTERRUPTED
    return 0


def facts_of(case: Case) -> str:
    """With the rounds that were run."""
    rounds = min(map(len, case.seconds.values()))
    return f"{case.facts}, {rounds} of {case.rounds} rounds"


def write(args: argparse.Namespace, about: dict[str, str], done: list[Case]) -> None:
    """Write the files that were asked for."""
    if args.json:
        tables = [
            {"title": case.title, "facts": facts_of(case), "rows": case.results()} for case in done
        ]
        with replacing(args.json) as aside:
            aside.write_text(json.dumps({**about, "tables": tables}, indent=1) + "\n")
    if args.markdown:
        facts = [f"- {key}: `{value}`" for key, value in about.items()]
        parts = ["\n".join(facts), LEGEND]
        for case in done:
            parts += [f"## {case.title}", facts_of(case), in_markdown(case.table())]
        with replacing(args.markdown) as aside:
            aside.write_text("\n\n".join(parts) + "\n")


def aligned(table: list[list[str]]) -> str:
    """In columns, the first two to the left."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    )


def in_markdown(table: list[list[str]]) -> str:
    """As a table of Markdown."""
    rule = ["---" if column < 2 else "---:" for column in range(len(table[0]))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (table[0], rule, *table[1:]))
