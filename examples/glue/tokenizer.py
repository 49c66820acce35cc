"""The tokenizer of the pre-trained model, read from the folder BPE_DIR.

BPE_DIR holds `dict.txt`, which is the dictionary of the pre-trained model, and one of:

    sentencepiece.bpe.model (or one other *.model)       a sentencepiece model
    encoder.json, vocab.bpe                              GPT-2's BPE
    tokenizer.json                                       of transformers, with its ids in dict.txt

preprocessing.json, where there is one, says whether the pre-training text was lowercased.
"""

import json
import re
import shutil
from pathlib import Path

from torch import Tensor

from tupe_fairseq import UsageError
from tupe_fairseq.fairseq.checks import read_dictionary
from tupe_fairseq.fairseq.hub.files import (
    PREPROCESSING,
    SENTENCEPIECE,
    TOKENIZER,
    build_tokenizer,
    find_tokenizer,
    lowercases,
    record_preprocessing,
)
from tupe_fairseq.fairseq.hub.tokenizer_json import TokenizerJson


class Tokenizer:
    """Splits text into ids of the dictionary, as fairseq's hub interface does.

    Args:
        folder: BPE_DIR.
        lowercase: whether the pre-training text was in lower case. None: as preprocessing.json
            says; without it, texts stay as they are. tokenizer.json does itself what its model
            needs.

    Raises:
        UsageError: the folder lacks a file, one cannot be loaded, or the dictionary has no word
            with a capital letter and nothing says why.
    """

    def __init__(self, folder: Path, lowercase: bool | None = None):
        settings = find_tokenizer(folder)
        words = folder / "dict.txt"
        if not settings:
            raise UsageError(
                f"BPE_DIR is {folder}, but must hold {SENTENCEPIECE}, or encoder.json and "
                "vocab.bpe, or tokenizer.json; it has none of these."
            )
        if not words.is_file():
            raise UsageError(f"no {words}: copy it from the pre-trained model's binarised text.")
        self.dictionary = read_dictionary(words)
        self.files = [Path(path) for name, path in settings.items() if name != "bpe"]
        self.bpe = build_tokenizer("bpe", settings)
        if isinstance(self.bpe, TokenizerJson):
            self.bpe.check_dictionary(self.dictionary)
        recorded = lowercases(folder) if lowercase is None else lowercase
        if recorded is None and not self._has_capitals():
            raise UsageError(
                f"BPE_DIR is {folder}, whose tokens have no capital letter, and no "
                f"{PREPROCESSING} there says whether the pre-training text was lowercased: give "
                "--lowercase or --cased."
            )
        self.lowercase = bool(recorded)

    @property
    def case(self) -> str:
        """The treatment of capital letters, in words."""
        if isinstance(self.bpe, TokenizerJson) and not self.lowercase:
            return "with the case of tokenizer.json"
        return "in lower case" if self.lowercase else "cased"

    def _has_capitals(self) -> bool:
        if isinstance(self.bpe, TokenizerJson):
            return True
        words = set(self.dictionary.symbols)
        if len(self.files) == 2:
            pieces = json.loads(self.files[0].read_text(encoding="utf-8"))
            words = {piece for piece, number in pieces.items() if str(number) in words}
        # ASCII only: GPT-2 represents a space by a letter that counts as a capital. Bytes, such as
        # <0x0A>, are no words.
        words = {word for word in words if not re.fullmatch("<.*>", word)}
        return any(re.search("[A-Z]", word) for word in words)

    def encode(self, text: str) -> Tensor:
        """Ids of a text, without <s> and </s>; T."""
        pieces = self.bpe.encode(text.lower() if self.lowercase else text)
        return self.dictionary.encode_line(pieces, add_if_not_exist=False, append_eos=False)

    def copy_to(self, folder: Path) -> None:
        """Copy the tokenizer to the folder of a model, and record the treatment of its texts."""
        record_preprocessing(folder, self.lowercase)
        for path in self.files:
            named = len(self.files) == 2 or path.name == TOKENIZER
            shutil.copy(path, folder / (path.name if named else SENTENCEPIECE))
