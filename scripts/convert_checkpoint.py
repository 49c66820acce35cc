"""Convert models between `tupe_roberta` directories and other formats; --help lists them.

    python scripts/convert_checkpoint.py --from FORMAT SOURCE    --out DIRECTORY
    python scripts/convert_checkpoint.py --to   FORMAT DIRECTORY --out DIRECTORY

With both --from and --to, no directory of this package lies between the two formats.
--check compares the outputs of both models. The source is not changed, and the output is written
atomically.
"""

import logging
import sys
import warnings

# Importing fairseq would advise to install tensorboardX.
logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)

from tupe_fairseq.base.errors import UsageError, one_line_endings  # noqa: E402


def main(argv: list[str] | None = None) -> None:
    """Convert, and print the report."""
    # fairseq enables the debugging output of all libraries, and its use of hydra makes them warn.
    logging.getLogger().setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="hydra|fairseq|tupe_fairseq")
    # This one blames a caller far up.
    warnings.filterwarnings("ignore", message=r"\s*'config' is validated against ConfigStore")
    try:
        from tupe_fairseq.convert.command import convert

        report = convert(argv)
    except ModuleNotFoundError as error:
        name = str(error.name).partition(".")[0]
        raise UsageError(
            f"conversion needs {name}, which is not installed: see scripts/fairseq.md."
        ) from error
    print("\n".join(report))


if __name__ == "__main__":
    with one_line_endings():
        try:
            main()
        except OSError as error:
            raise UsageError(str(error)) from error
        except KeyboardInterrupt as error:
            sys.exit(f"stopped: {error}" if error.args else "stopped.")
