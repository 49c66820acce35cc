"""Contents of a sentencepiece model file that its library does not give.

The file is a protocol buffer; field numbers are those of sentencepiece_model.proto.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import DataError

PIECES, TRAINER, NORMALIZER = 1, 2, 3
PIECE, SCORE, KIND = 1, 2, 3
MODEL_TYPE, BYTE_FALLBACK, SUFFIX = 3, 35, 24
CHARSMAP, DUMMY_PREFIX, REMOVE_SPACES = 2, 3, 4
BPE, NORMAL, USER_DEFINED = 2, 1, 4


@dataclass(frozen=True)
class SentencePieceFile:
    """What is read.

    Attributes:
        pieces: pieces of text with their scores, in the order of the file.
        charsmap: rules of normalisation, as sentencepiece has compiled them.
        dummy_prefix: whether a space is put before the text.
        remove_spaces: whether repeated and outer spaces are removed.
    """

    pieces: dict[str, float]
    charsmap: bytes
    dummy_prefix: bool
    remove_spaces: bool

    @classmethod
    def read(cls, path: Path) -> "SentencePieceFile":
        """Read a file.

        Raises:
            DataError: it cannot be read, or is no BPE model with pieces alone.
        """
        try:
            message = list(_fields(path.read_bytes()))
            trainer, normalizer = (
                dict(_fields(next((value for number, value in message if number == part), b"")))
                for part in (TRAINER, NORMALIZER)
            )
            pieces = [dict(_fields(value)) for number, value in message if number == PIECES]
        except OSError as error:
            raise DataError(f"cannot read {path}: {error.strerror}.") from error
        except (IndexError, struct.error, TypeError, ValueError) as error:
            raise DataError(f"{path} is not a sentencepiece model: {error}.") from error
        kinds = {piece.get(KIND, NORMAL) for piece in pieces}
        unserved = (BYTE_FALLBACK, SUFFIX)
        if trainer.get(MODEL_TYPE, 1) != BPE or any(trainer.get(each) for each in unserved):
            raise DataError(f"{path} is not a sentencepiece model of the type bpe.")
        if USER_DEFINED in kinds:
            raise DataError(f"{path} has user-defined symbols, which are not supported.")
        return cls(
            {
                piece[PIECE].decode("utf-8"): struct.unpack("<f", piece.get(SCORE, bytes(4)))[0]
                for piece in pieces
                if piece.get(KIND, NORMAL) == NORMAL
            },
            normalizer.get(CHARSMAP, b""),
            bool(normalizer.get(DUMMY_PREFIX, 1)),
            bool(normalizer.get(REMOVE_SPACES, 1)),
        )


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Numbers and values of a message's fields: an integer, or bytes."""
    place = 0
    while place < len(data):
        key, place = _integer(data, place)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, place = _integer(data, place)
            yield number, value
            continue
        size = {1: 8, 5: 4}.get(wire)
        if wire == 2:
            size, place = _integer(data, place)
        if size is None or place + size > len(data):
            raise ValueError("a field is damaged")
        yield number, data[place : place + size]
        place += size


def _integer(data: bytes, place: int) -> tuple[int, int]:
    """A number of 7 bits a byte, and the place after it."""
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
