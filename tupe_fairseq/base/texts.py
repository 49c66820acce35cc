"""Read text: UTF-8 with or without a byte order mark, one text per line.

A line ends in LF or CR LF. All other characters are text: a CR inside a line, form feeds, and the
separators of Unicode, at which `str.splitlines` would split.
"""

import codecs
from collections.abc import Iterable, Iterator
from pathlib import Path

from .errors import DataError

#: What Windows' programs write as "Unicode".
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def read_lines(path: str | Path, name: str | None = None) -> Iterator[str]:
    """Lines of a file without their ends.

    Args:
        path: of the file.
        name: what messages call it; default: the path.

    Raises:
        DataError: the file cannot be read, or a line is not UTF-8.
    """
    name = name or str(path)
    try:
        with open(path, "rb") as file:
            yield from decoded(file, name)
    except OSError as error:
        raise DataError(f"{name}: cannot be read: {error.strerror}.") from error


def decoded(lines: Iterable[bytes], name: str) -> Iterator[str]:
    """Text of lines, as a binary file yields them, without their ends.

    Args:
        lines: each with its end, from the beginning of a file.
        name: what messages call the file.

    Raises:
        DataError: a line is not UTF-8.
    """
    for number, line in enumerate(lines, start=1):
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            yield line.decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            encoding = "utf-16" if number == 1 and line.startswith(UTF16) else "latin1"
            raise DataError(
                f"{name}: line {number} is not UTF-8, byte {line[error.start]:#x} at "
                f"{error.start}: convert it, for instance by iconv -f {encoding} -t utf-8."
            ) from error
