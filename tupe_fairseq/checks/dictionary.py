"""Check a dictionary before fairseq reads it: the error names the file."""

from pathlib import Path

from fairseq.data import Dictionary

from ..errors import DataError

#: Bytes. A longer line holds no token, and is not read to its end.
LONGEST_LINE = 1 << 16


def check_dictionary(path: Path) -> None:
    """Read a dictionary as fairseq will.

    fairseq's commands read it before they build a model, so there fairseq's traceback remains.

    Raises:
        DataError: fairseq cannot read it.
    """
    try:
        with path.open("rb") as file:
            while line := file.readline(LONGEST_LINE):
                if len(line) == LONGEST_LINE:
                    raise ValueError(f"a line is longer than {LONGEST_LINE} bytes")
        Dictionary.load(str(path))
    # fairseq raises Exception itself where the encoding is wrong.
    except Exception as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise DataError(f"{path} cannot be loaded as a dictionary: {reason}.") from error
