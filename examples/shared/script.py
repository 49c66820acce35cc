"""How scripts begin and end."""

import argparse
import logging
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

from tupe_fairseq.base.errors import UsageError, one_line_endings
from tupe_fairseq.fairseq.commands import import_user_dir


def run(main: Callable[[], object]) -> None:
    """Run the main function of a script.

    An error that the user can act on ends the script with one line on stderr and status 1. SIGTERM
    ends it as Ctrl-C does, so that it can stop the processes that it has started.

    Args:
        main: returns the exit status, or None for 0.
    """
    # Importing fairseq turns on the debugging output of all libraries, and its use of hydra warns.
    logging.getLogger().setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="hydra|fairseq")
    # This one blames a caller far up.
    warnings.filterwarnings("ignore", message=r"\s*'config' is validated against ConfigStore")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with one_line_endings():
            try:
                import_user_dir()
                sys.exit(main())
            except OSError as error:
                raise UsageError(str(error)) from error
    except KeyboardInterrupt:
        sys.exit("stopped; run the same command again to continue.")


def run_report(report: Callable[[Path], None]) -> None:
    """Run a report; its argument is the folder that holds results.json."""

    def main() -> None:
        parser = argparse.ArgumentParser(description="Write report.md again from results.json.")
        parser.add_argument("folder", type=Path, metavar="FOLDER", help="holds results.json")
        folder = parser.parse_args().folder
        report(folder)
        print(f"report: {folder / 'report.md'}")

    run(main)
