"""The command behind scripts/convert_checkpoint.py: read one format, write another, compare."""

import argparse
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..base.errors import UsageError
from ..fairseq.commands import add_user_dir
from . import formats  # noqa: F401 (registers the formats)
from .check import DifferenceError, check
from .conversion import CONVERSIONS, Conversion
from .models import head_names

#: Help of --dict.
DICTIONARY = "the dictionary (default: dict.txt beside SOURCE)"


def convert(argv: list[str] | None = None) -> list[str]:
    """Run the command line.

    Returns:
        Lines to print.

    Raises:
        UsageError: the conversion is not possible, or `--check` finds a difference, and nothing is
            left behind; or the output is written, but cannot be compared.
    """
    arguments, (reading, writing), options = parse(argv)
    source = arguments.source
    out = arguments.out
    converted = reading.function(source, getattr(arguments, "dict", None), **options[0])
    # A model that is pooled has no head.
    head = options[1].get("head") or (None if "pooling" in options[1] else converted.head)
    if any(option.name == "head" for option in writing.options):
        options[1]["head"] = head
    writing.function(converted, out, **options[1])
    # The format may have left it out.
    head = head if head in head_names(converted.state) else None
    report = [*converted.notes, f"written: {out}"]
    if arguments.check:
        with _kept_unless_different(out):
            ends = reading.open(source, converted, head), writing.open(out, converted, head)
            report += check(ends, converted, head, bool(options[1].get("lower_case")))
    return report


@contextmanager
def _kept_unless_different(out: Path) -> Iterator[None]:
    """Remove what is written if the comparison inside the block finds a difference, and only then.

    Raises:
        UsageError: a difference, or why there is no comparison.
    """
    try:
        yield
    except DifferenceError:
        shutil.rmtree(out)
        raise
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(f"{out} is written, but was not compared.") from error
    # The libraries of either side raise errors of any type.
    except Exception as error:
        reason = " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__
        raise UsageError(f"{out} is written, but cannot be compared: {reason}.") from error


def parse(
    argv: list[str] | None = None,
) -> tuple[argparse.Namespace, tuple[Conversion, ...], tuple[dict[str, Any], ...]]:
    """Parse the command line.

    Returns:
        The common arguments, the conversions of --from and --to, and the options of each.
    """
    direction = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for flag, what in (("--from", "SOURCE"), ("--to", "the output")):
        names = [each.name for _, each in CONVERSIONS.items() if each.flag == flag]
        text = f"format of {what}; default: a directory of this package"
        direction.add_argument(flag, choices=names, help=text)
    chosen = vars(direction.parse_known_args(argv)[0])
    parser = _parser(direction)
    if not any(chosen.values()):
        parser.parse_args(argv)
        parser.error("one of the arguments --from --to is required")
    ends = tuple(_end(flag, chosen[flag]) for flag in ("from", "to"))
    for conversion in ends:
        for option in conversion.options:
            kind = {"choices": ("yes", "no")} if option.type is bool else {"type": option.type}
            parser.add_argument(option.flag, help=option.help, **kind)
    if chosen["from"] is not None:
        parser.add_argument("--dict", type=Path, help=DICTIONARY)
    arguments = parser.parse_args(argv)
    return arguments, ends, tuple(_options(arguments, each) for each in ends)


def _end(flag: str, name: str | None) -> Conversion:
    """The conversion of a format, by default of a directory of this package."""
    if name is not None:
        return CONVERSIONS[f"--{flag} {name}"]
    # Needs fairseq, which other formats do not.
    from . import directory

    return directory.READ if flag == "from" else directory.WRITE


def _options(arguments: argparse.Namespace, conversion: Conversion) -> dict[str, Any]:
    """The options of a conversion that are not left at their defaults."""
    options = {}
    for option in conversion.options:
        value = getattr(arguments, option.name)
        if value is not None:
            options[option.name] = value == "yes" if option.type is bool else value
    return options


def _parser(direction: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """What all conversions take; the help lists the options of each."""
    parser = argparse.ArgumentParser(
        description="Convert a model to a directory of this package (--from), such a directory to "
        "another format (--to), or one format to another (both).",
        epilog="conversions:\n" + "\n".join(_help_of(each) for _, each in CONVERSIONS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[direction],
        allow_abbrev=False,
    )
    parser.add_argument("source", metavar="SOURCE", type=Path, help="checkpoint or directory")
    parser.add_argument("--out", type=Path, required=True, help="new directory to write")
    parser.add_argument("--check", action="store_true", help="compare the outputs of both models")
    add_user_dir(parser)
    return parser


def _help_of(conversion: Conversion) -> str:
    needs = f" (needs tupe_fairseq[{conversion.extra}])" if conversion.extra else ""
    options = [f"\n      {option.flag}: {option.help}" for option in conversion.options]
    if conversion.flag == "--from":
        options.append(f"\n      --dict: {DICTIONARY}")
    return f"  {conversion.command}\n      {conversion.summary}{needs}{''.join(options)}"
