"""fairseq's tokenizer of a model, of which that of transformers is made."""

from dataclasses import dataclass
from pathlib import Path

from fairseq.data import Dictionary

from ..base.extras import import_extra
from ..fairseq.hub.files import PREPROCESSING, lowercases, preprocessing_record


@dataclass(frozen=True)
class FairseqTokenizer:
    """fairseq's tokenizer of a model.

    Attributes:
        folder: with its files.
        dictionary: the tokens of the model.
        types: whether the second text of a pair has another token type.
        separator: whether a second </s> separates two texts; None: if there are no types.
    """

    folder: Path
    dictionary: Dictionary
    types: bool
    separator: bool | None

    @property
    def unusual(self) -> bool | None:
        """`separator` where it does not follow from the types, else None."""
        return self.separator if self.separator == self.types else None

    def write(self, out: Path, longest: int, lower_case: bool | None) -> str:
        """Write that of transformers, if it can be made.

        Args:
            out: the folder.
            longest: tokens of a text.
            lower_case: whether texts are lowercased; None: as the folder records.

        Returns:
            A note for the user, or "".
        """
        import_extra("tokenizers", "hf")
        from .fast_tokenizers import write_tokenizer

        recorded = lowercases(self.folder)
        lowers = bool(recorded if lower_case is None else lower_case)
        if lowers or recorded:
            record = preprocessing_record(lowercase=lowers, separator=self.unusual)
            (out / PREPROCESSING).write_bytes(record)
        return write_tokenizer(
            out, self.folder, self.dictionary, longest, lowers, self.types, self.separator
        )
