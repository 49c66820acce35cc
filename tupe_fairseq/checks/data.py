"""Check binarised data before training or generation reads them: errors name the file.

fairseq itself shows a traceback that names no file, and detects a truncated file only in the
middle of an epoch.
"""

from operator import itemgetter
from pathlib import Path

import numpy as np
from fairseq.data import Dictionary

from ..errors import DataError
from .index import Index, damaged, read_index

MASK = "<mask>"
#: Token ids of a file that are compared with the dictionary.
FIRST_IDS = 1_000_000


def check_data(paths: str, dictionary: Dictionary | None = None) -> None:
    """Compare binarised data with their indices, and their first token ids with the dictionary.

    Args:
        paths: value of `data`, folders separated by colons. fairseq names those that are missing.
        dictionary: of the sentences, with `<mask>`.

    Raises:
        DataError: a file is missing, cut off or of another dictionary, or its text has `<mask>`.
    """
    for folder in map(Path, str(paths).split(":")):
        for part in (folder, *(folder / name for name in ("input0", "input1", "label"))):
            for path in sorted(part.glob("*.idx")):
                index = _check_pair(path, path.with_suffix(".bin"))
                if index is not None and dictionary is not None and part.name != "label":
                    _check_ids(path.with_suffix(".bin"), index, dictionary)


def _check_pair(path: Path, data: Path) -> Index | None:
    """Compare an index with itself and with the size of its .bin file."""
    index = read_index(path)
    try:
        found = data.stat().st_size
    except OSError as error:
        raise DataError(f"cannot read {data}: {error.strerror}.") from error
    if index is None:
        return None
    end = 0
    for _, sizes, offsets in index.blocks():
        # Sentences follow one another without a gap.
        ends = end + index.id_type.itemsize * sizes.cumsum()
        if sizes.min() < 0 or (offsets != ends - index.id_type.itemsize * sizes).any():
            raise damaged(path)
        end = int(ends[-1])
    if found != end:
        raise DataError(
            f"{data} has {found} bytes, but must have {end} according to {path.name}: it is cut "
            "off or belongs to another index; run fairseq-preprocess again."
        )
    return index


def _check_ids(data: Path, index: Index, dictionary: Dictionary) -> None:
    """Compare the first token ids with the dictionary."""
    ids = np.fromfile(data, index.id_type, FIRST_IDS)
    if ids.max(initial=0) >= len(dictionary) or ids.min(initial=0) < 0:
        raise DataError(
            f"{data} was binarised with another dictionary than the dict.txt beside it, which has "
            f"{len(dictionary)} symbols, or is damaged; run fairseq-preprocess again."
        )
    if MASK not in dictionary.symbols:
        return
    masks = np.flatnonzero(ids == dictionary.index(MASK))
    if len(masks):
        place = masks[0] * index.id_type.itemsize
        number = sum(np.searchsorted(offsets, place, "right") for _, _, offsets in index.blocks())
        raise DataError(
            f"{data}: sentence {number} has the token {MASK}, which is reserved for the model: "
            "remove or escape it in the text and run fairseq-preprocess again. If the text has "
            "none, the data were binarised with another dictionary than the dict.txt beside them."
        )


def check_lengths_of_pairs(
    folder: Path, split: str, languages: tuple[str, str], longest: tuple[int, int]
) -> None:
    """Check that the sentences of a translation set fit the model's positions.

    fairseq would fail too, with a traceback.

    Args:
        folder: binarised data.
        split: e.g. "valid". fairseq names one that is missing.
        languages: source and target.
        longest: most tokens of source and target.

    Raises:
        DataError: there is such a sentence, or an index is cut off or damaged.
    """
    source, target = languages
    for language, most, side in zip(languages, longest, ("source", "target"), strict=True):
        for pair in (f"{source}-{target}", f"{target}-{source}"):
            path = folder / f"{split}.{pair}.{language}.idx"
            index = read_index(path) if path.is_file() else None
            tokens, number = _longest_sentence(index) if index else (0, 0)
            if tokens > most:
                raise DataError(
                    f"{path.name}: sentence {number} has {tokens} tokens, but "
                    f"--max-{side}-positions is {most}; --skip-invalid-size-inputs-valid-test "
                    "leaves such sentences out."
                )


def _longest_sentence(index: Index) -> tuple[int, int]:
    """Tokens and number of the first sentence that has most tokens; numbers begin with 1."""
    longest = (
        (int(sizes.max()), before + int(sizes.argmax()) + 1) for before, sizes, _ in index.blocks()
    )
    return max(longest, key=itemgetter(0), default=(0, 0))
