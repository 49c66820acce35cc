"""Everything that a machine with a GPU can tell, in order of worth; see scripts/gpu_check.sh."""

import argparse
import json
import logging
import time
from pathlib import Path
from typing import Any

import torch

from examples.gpu import data, machine, running, tests_log
from examples.gpu.plan import PARTS, Row, rows
from examples.gpu.report import write_report
from examples.shared import script
from examples.shared.jobs import keep
from examples.shared.locks import locked
from examples.shared.markdown import shown
from tupe_fairseq import UsageError
from tupe_fairseq.files import replacing

#: Seconds of --until that are left to end a row and to write the report.
RESERVE = 15


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="gpu_check.sh", description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    parts = ", ".join(f"{name} ({told})" for name, told in PARTS.items())
    add("--parts", default=",".join(PARTS), metavar="NAMES", help=f"default: all of {parts}")
    add("--until", type=float, metavar="MINUTES", help="stop after that; default: no limit")
    add("--out", type=Path, default=Path("outputs/gpu"), help="default: %(default)s")
    add("--size", choices=("gpu", "tiny"), help="default: gpu with a GPU, otherwise tiny")
    add("--text", nargs="+", type=Path, default=[], help="of the study: text files or folders")
    add("--glue", type=Path, help="of the study: the GLUE download")
    add("--again", action="store_true", help="repeat rows and tests that have failed")
    add("--report", action="store_true", help="only write the report")
    args = parser.parse_args(argv)
    args.parts = args.parts.split(",")
    if unknown := [name for name in args.parts if name not in PARTS]:
        raise UsageError(f"--parts names {unknown[0]!r}; the parts are: {', '.join(PARTS)}.")
    if args.until is not None and args.until <= 0:
        raise UsageError(f"--until is {args.until:g}, but must be above 0.")
    if missing := [path for path in (*args.text, args.glue) if path and not path.exists()]:
        raise UsageError(f"--text or --glue names {str(missing[0])!r}, which does not exist.")
    gpu = torch.cuda.is_available()
    args.size = args.size or ("gpu" if gpu else "tiny")
    if args.size == "gpu" and not gpu:
        raise UsageError("--size is 'gpu', but torch finds no GPU; use tiny.")
    args.text = [path.absolute() for path in args.text]
    args.glue = args.glue and args.glue.absolute()
    args.out = args.out.absolute()
    return args


class Results:
    """Results of the rows, one file for each part.

    Args:
        out: the folder.
        about: what the results of this call depend on.
    """

    def __init__(self, out: Path, about: dict[str, str]):
        self.out, self.about = out, about
        self.parts = {part: self._read(part) for part in PARTS}

    def _read(self, part: str) -> dict[str, dict[str, Any]]:
        path = self.out / f"{part}.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def is_done(self, row: Row, again: bool) -> bool:
        """Whether there is a result of this device, these versions and this source code."""
        found = self.parts[row.part].get(row.name)
        if found is None or (again and found.get("error")):
            return False
        return machine.identity(found["about"]) == machine.identity(self.about)

    def add(self, row: Row, seconds: float, **result: Any) -> None:
        """Keep the result of a row."""
        command = shown(("python", *row.command), {"OUT": self.out})
        facts = {"about": self.about, "command": command}
        self.parts[row.part][row.name] = {**facts, "wall_seconds": round(seconds, 1), **result}
        with replacing(self.out / f"{row.part}.json") as aside:
            aside.write_text(json.dumps(self.parts[row.part], indent=1) + "\n")


def prepare(args: argparse.Namespace, results: Results) -> None:
    """Begin the tests anew if the source code has changed, and --again forgets failures."""
    log, told = args.out / "tests.jsonl", args.out / "work/tests_of.json"
    of = json.dumps(machine.identity(results.about))
    if not told.exists() or told.read_text() != of:
        log.unlink(missing_ok=True)
        with replacing(told) as aside:
            aside.write_text(of)
    if args.again and log.exists():
        left = [e for e in tests_log.read(log) if e.get("outcome") == "passed"]
        with replacing(log) as aside:
            aside.write_text("\n".join(map(json.dumps, left)))
        results.parts["tests"].clear()


def run_row(row: Row, place: running.Place, results: Results) -> None:
    """Run a row and keep its result, or its error.

    Raises:
        running.TimeIsUp: at the deadline.
    """
    start = time.monotonic()
    print(f"{row.part}: {row.name} ...", end=" ", flush=True)
    try:
        if missing := [name for name in row.needs if not machine.has(name)]:
            print(f"not run: {missing[0]} is not installed")
            return
        if row.kind == "clock" and "fairseq" in row.needs:
            data.write_ids(place.work / "data")
        if row.kind == "study":
            data.write_text(place.work / "text.txt")
            (place.work / "no-glue").mkdir(exist_ok=True)
        result = running.run(row, place)
    except UsageError as error:
        print(f"failed: {error}")
        results.add(row, time.monotonic() - start, error=str(error))
    except (running.TimeIsUp, KeyboardInterrupt):
        print("stopped")
        raise
    else:
        results.add(row, time.monotonic() - start, **result)
        print(f"{time.monotonic() - start:.0f} s")


def main(argv: list[str] | None = None) -> None:
    """See the module's docstring."""
    args = parse(argv)
    # Of fairseq, when it is imported.
    logging.disable(logging.INFO)
    begun = time.monotonic()
    deadline = begun + (60 * args.until - RESERVE if args.until else 1e9)
    with locked(args.out) as lock:
        keep(args.out, {"size": args.size}, "work/size.json", "results of another size")
        results = Results(args.out, machine.about())
        place = running.Place(args.out, deadline, lock)
        planned = rows(args.size, place.work, args.text, args.glue)

        def report() -> None:
            write_report(args.out, args.size, planned, results.parts, results.about)

        if not args.report:
            prepare(args, results)
            left = [row for row in planned if row.part in args.parts]
            left = [row for row in left if not results.is_done(row, args.again)]
            print(f"{len(left)} of {len(planned)} rows to run; {results.about['device']}")
            try:
                for row in left:
                    run_row(row, place, results)
                    report()
            except running.TimeIsUp:
                print("--until is reached; run the same command again to continue.")
        report()
    print(f"report: {args.out / 'report.md'}")


if __name__ == "__main__":
    script.run(main)
