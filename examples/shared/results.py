"""results.json of a folder of runs (see runner.py), and what all reports of it have.

    {"command": of the last call, "plan": settings of all parts, "runs": {NAME: RUN}}

RUN has `settings` and `commands`; from its start on also `seconds`, `date`, `device`, `commit` and
`torch`; and `result` if it is complete. The report shows a `note`, written by hand.
"""

import json
import math
import os
import zlib
from pathlib import Path
from typing import Any

from examples.shared.markdown import table
from tupe_fairseq.base.errors import UsageError
from tupe_fairseq.base.files import replacing

NAME = "results.json"
Results = dict[str, Any]


def read_results(out: Path) -> Results:
    """The results of a folder.

    Raises:
        UsageError: there are none, or the file is damaged.
    """
    try:
        found = json.loads((out / NAME).read_text(encoding="utf-8"))
        found["runs"].values()
    except FileNotFoundError:
        raise UsageError(f"{str(out)!r} has no {NAME}.") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"cannot read {out / NAME}: {error}.") from error
    return found


def rows(results: Results, **settings: Any) -> list[dict[str, Any]]:
    """Settings and result of each completed run that has these settings, in one dictionary."""
    return [run["settings"] | run["result"] for run in _runs(results, settings) if "result" in run]


def missing(results: Results, **settings: Any) -> list[dict[str, Any]]:
    """Settings of the planned runs without a result."""
    return [run["settings"] for run in _runs(results, settings) if "result" not in run]


def _runs(results: Results, settings: dict[str, Any]) -> list[dict[str, Any]]:
    runs = results["runs"].values()
    return [run for run in runs if settings.items() <= run["settings"].items()]


def what_ran(results: Results) -> list[str]:
    """Lines of a report: completed runs and their time by `part`, devices, the command."""
    parts: dict[str, list[dict[str, Any]]] = {}
    for name, run in results["runs"].items():
        parts.setdefault(run["settings"].get("part", name.split("/")[0]), []).append(run)
    cells = []
    for part, runs in parts.items():
        done = sum("result" in run for run in runs)
        minutes = math.fsum(run.get("seconds", 0) for run in runs) / 60
        cells.append([part, f"{done} of {len(runs)}", f"{minutes:.1f}"])
    keys = ("device", "torch", "commit")
    begun = [run for run in results["runs"].values() if "device" in run]
    machines = {tuple(run[key] for key in keys) for run in begun}
    said = [f"{device}; torch {torch}; commit {commit}." for device, torch, commit in machines]
    return [
        "## Runs",
        "",
        *sorted(said),
        *([results["note"]] if "note" in results else []),
        "",
        *table(["part", "completed runs", "minutes"], cells),
        "",
        "```bash",
        results["command"],
        "```",
        "",
        "`results.json` has the settings and the commands of each run.",
    ]


def write_report(out: Path, results: Results, lines: list[str]) -> None:
    """Write report.md: the lines, and what ran."""
    lines = [*lines, *what_ran(results)]
    with replacing(out / "report.md") as aside:
        aside.write_text("\n".join(lines) + "\n", encoding="utf-8")


def fingerprint(*files: Path) -> str:
    """A checksum of the ends of files; that of a checkpoint lists the checksums of its tensors."""
    found = 0
    for path in files:
        with path.open("rb") as file:
            file.seek(-min(100_000, path.stat().st_size), os.SEEK_END)
            found = zlib.crc32(file.read(), found)
    return f"{found:08x}"
