"""The command behind scripts/convert_checkpoint.py: read one format, write another, compare."""

import argparse
import shutil
from pathlib import Path
from typing import Any

from ..errors import ConfigurationError
from ..hub.files import find_checkpoint
from ..position import Option
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
            source = Path(*find_checkpoint(source, None))
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
        return [*report, *check_directory(directory, forward, head, converted.family)]
    except BaseException:
        shutil.rmtree(out)
        raise


def parse(argv: list[str] | None = None) -> tuple[argparse.Namespace, Conversion, dict[str, Any]]:
    """Parse the command line.

    Returns:
        The common arguments, the conversion asked for, and its own options.

    Raises:
        ConfigurationError: an option of another conversion was given, or is not yes or no.
    """
    owners = _owners()
    arguments = _parser(owners).parse_args(argv)
    given = {name: value for name, value in vars(arguments).items() if value is not None}
    key = f"--from {given['from']}" if "from" in given else f"--to {given['to']}"
    for option, keys in owners.items():
        if option.name in given and key not in keys:
            raise ConfigurationError(
                f"{option.flag} belongs to {' or '.join(keys)}; leave it out."
            )
        if option.name in given and option.type is bool:
            if given[option.name] not in ("yes", "no"):
                raise ConfigurationError(
                    f"{option.flag} is {given[option.name]!r}, but must be yes or no."
                )
            given[option.name] = given[option.name] == "yes"
    conversion = CONVERSIONS[key]
    own = {option.name for option in conversion.options}
    return arguments, conversion, {name: given[name] for name in own & given.keys()}


def _owners() -> dict[Option, list[str]]:
    """All options, and the conversions that take them."""
    dictionary = Option("dict", Path, None, "default dict.txt beside SOURCE")
    owners = {dictionary: [key for key in CONVERSIONS if key.startswith("--from")]}
    for key, conversion in CONVERSIONS.items():
        for option in conversion.options:
            owners.setdefault(option, []).append(key)
    return owners


def _parser(owners: dict[Option, list[str]]) -> argparse.ArgumentParser:
    table = [conversion for _, conversion in CONVERSIONS.items()]
    parser = argparse.ArgumentParser(
        description="Convert a model to a directory of this package (--from), or such a directory "
        "to another format (--to).",
        epilog="conversions:\n" + "\n".join(map(_help_of, table)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    direction = parser.add_mutually_exclusive_group(required=True)
    for flag, what in (("--from", "SOURCE"), ("--to", "the output")):
        names = [each.name for each in table if each.flag == flag]
        direction.add_argument(flag, choices=names, help=f"format of {what}")
    parser.add_argument("source", metavar="SOURCE", type=Path, help="checkpoint or directory")
    parser.add_argument("--out", type=Path, required=True, help="new directory to write")
    parser.add_argument("--check", action="store_true", help="compare the outputs of both models")
    for option, keys in owners.items():
        kind = str if option.type is bool else option.type
        text = f"with {' or '.join(keys)}: {option.help}"
        parser.add_argument(option.flag, type=kind, help=text)
    return parser


def _help_of(conversion: Conversion) -> str:
    needs = f" (needs tupe_fairseq[{conversion.extra}])" if conversion.extra else ""
    return f"  {conversion.command}\n      {conversion.summary}{needs}"
