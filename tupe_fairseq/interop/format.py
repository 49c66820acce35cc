"""The table of formats that `scripts/convert_checkpoint.py` reads and writes.

To add a format, add a file to `formats/` that calls `register_format`: the flags, `--help` and
`--check` follow from its entry, and a test compares the list in the README.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from ..registry import Registry
from .directory import Converted

#: Ids B×T -> outputs, with the names of `check.own_outputs`.
Forward = Callable[[Tensor], dict[str, Tensor]]


class Option(NamedTuple):
    """A command-line option of a format: a keyword argument of its `read` or `write`."""

    name: str
    help: str
    type: type = str

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


@dataclass(frozen=True, kw_only=True)
class Format:
    """How models of one format are read, written and compared.

    Attributes:
        summary: what the format is, in one line for `--help`.
        stored_as: what a model is: "CHECKPOINT", a file, or "DIRECTORY".
        extra: the extra of this package that the format needs, if any.
        read: (source, dictionary, **options) -> `Converted`; None if the format is only written.
        read_options: options of `read`.
        write: (converted, out, **options) -> None; None if the format is only read.
        write_options: options of `write`.
        outputs: (path, converted, head) -> `Forward` of the model at that path, for `--check`. It
            does not use `tupe_roberta`. `head` names the classification head to compare, or None.
    """

    summary: str
    stored_as: str
    outputs: Callable[..., Forward]
    extra: str | None = None
    read: Callable[..., Converted] | None = None
    read_options: tuple[Option, ...] = ()
    write: Callable[..., None] | None = None
    write_options: tuple[Option, ...] = ()


FORMATS = Registry("--from or --to")


def register_format(name: str, entry: Format) -> None:
    """Enter a format under the name that `--from` and `--to` take."""
    FORMATS.register(name)(entry)


class Conversion(NamedTuple):
    """One format in one direction.

    Attributes:
        flag: "--from" or "--to".
        name: of the format.
        format: its entry.
        function: the entry's `read` or `write`.
        options: those that the function takes.
    """

    flag: str
    name: str
    format: Format
    function: Callable[..., Any]
    options: tuple[Option, ...]

    @property
    def command(self) -> str:
        """Its arguments, for `--help` and the README."""
        source = self.format.stored_as if self.flag == "--from" else "DIRECTORY"
        return f"{self.flag} {self.name} {source} --out DIRECTORY"


def conversions() -> list[Conversion]:
    """All conversions, `--from` first."""
    reads = [
        Conversion("--from", name, entry, entry.read, entry.read_options)
        for name, entry in FORMATS.items()
        if entry.read is not None
    ]
    writes = [
        Conversion("--to", name, entry, entry.write, entry.write_options)
        for name, entry in FORMATS.items()
        if entry.write is not None
    ]
    return reads + writes
