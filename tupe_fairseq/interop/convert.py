"""The command behind scripts/convert_checkpoint.py: read one format, write another, compare."""

import argparse
import shutil
from pathlib import Path
from typing import Any

from ..hub.files import find_checkpoint
from . import formats  # noqa: F401 (registers the formats)
from .check import check_directory
from .conversion import CONVERSIONS, Conversion
from .directory import load, write


def convert(argv: list[str] | None = None) -> list[str]:
    """Run the command line.

    Returns:
        Lines to print.

    Raises:
        UsageError: the conversion is not possible, or `--check` fails; nothing is left behind.
    """
    arguments, conversion, options = parse(argv)
    source, out = arguments.source, arguments.out
    if conversion.flag == "--from":
        if conversion.source == "CHECKPOINT" and source.is_dir():
            source = find_checkpoint(source)
        converted = conversion.function(source, arguments.dict, **options)
        folder = source if source.is_dir() else source.parent
        write(converted, out, arguments.dict or folder / "dict.txt")
        directory, other = out, source
    else:
        converted = load(source)
        conversion.function(converted, out, **options)
        directory, other = source, out
    report = [*converted.notes, f"written: {out}"]
    if not arguments.check:
        return report
    if converted.not_comparable or conversion.outputs is None:
        return [*report, f"not compared: {converted.not_comparable}"]
    try:
        head = options.get("head") or converted.head
        forward = conversion.outputs(other, converted, head)
        return [*report, check_directory(directory, forward, head, converted.family)]
    except BaseException:
        shutil.rmtree(out)
        raise


def parse(argv: list[str] | None = None) -> tuple[argparse.Namespace, Conversion, dict[str, Any]]:
    """Parse the command line.

    Returns:
        The common arguments, the conversion asked for, and its own options.
    """
    direction = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    group = direction.add_mutually_exclusive_group()
    for flag, what in (("--from", "SOURCE"), ("--to", "the output")):
        names = [each.name for _, each in CONVERSIONS.items() if each.flag == flag]
        group.add_argument(flag, choices=names, help=f"format of {what}")
    chosen = vars(direction.parse_known_args(argv)[0])
    keys = [f"--{flag} {name}" for flag, name in chosen.items() if name is not None]
    group.required = True
    parser = _parser(direction)
    if not keys:
        # Prints the help or an error, and exits.
        parser.parse_args(argv)
    conversion = CONVERSIONS[keys[0]]
    for option in conversion.options:
        kind = {"choices": ("yes", "no")} if option.type is bool else {"type": option.type}
        parser.add_argument(option.flag, help=option.help, **kind)
    if conversion.flag == "--from":
        parser.add_argument("--dict", type=Path, help="default: dict.txt beside SOURCE")
    arguments = parser.parse_args(argv)
    options = {}
    for option in conversion.options:
        if (value := getattr(arguments, option.name)) is not None:
            options[option.name] = value == "yes" if option.type is bool else value
    return arguments, conversion, options


def _parser(direction: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """What all conversions take; the help lists the options of each."""
    parser = argparse.ArgumentParser(
        description="Convert a model to a directory of this package (--from), or such a directory "
        "to another format (--to).",
        epilog="conversions:\n" + "\n".join(_help_of(each) for _, each in CONVERSIONS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[direction],
        allow_abbrev=False,
    )
    parser.add_argument("source", metavar="SOURCE", type=Path, help="checkpoint or directory")
    parser.add_argument("--out", type=Path, required=True, help="new directory to write")
    parser.add_argument("--check", action="store_true", help="compare the outputs of both models")
    return parser


def _help_of(conversion: Conversion) -> str:
    needs = f" (needs tupe_fairseq[{conversion.extra}])" if conversion.extra else ""
    options = (f"\n      {option.flag}: {option.help}" for option in conversion.options)
    return f"  {conversion.command}\n      {conversion.summary}{needs}{''.join(options)}"
