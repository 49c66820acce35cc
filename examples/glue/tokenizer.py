"""The tokenizer of the pre-trained model, read from the folder BPE_DIR.

BPE_DIR holds `dict.txt`, which is the dictionary of the pre-trained model, and one of:

    sentencepiece.bpe.model (or one other *.model)       a sentencepiece model
    encoder.json, vocab.bpe                              GPT-2's BPE
"""

from __future__ import annotations

import json
import re
import shutil
from argparse import Namespace
from pathlib import Path

from fairseq.data import Dictionary, encoders
from torch import Tensor

from examples.shared.pieces import MODEL as SENTENCEPIECE
from tupe_fairseq import UsageError

GPT2 = ("encoder.json", "vocab.bpe")


class Tokenizer:
    """Splits text into ids of the dictionary, as fairseq's hub interface does.

    Args:
        folder: BPE_DIR.
        lowercase: whether the pre-training text was in lower case; None: if the dictionary has
            no word with a capital letter.

    Raises:
        UsageError: the folder lacks a file.
    """

    def __init__(self, folder: Path, lowercase: bool | None = None):
        self.files = find_files(folder)
        self.dictionary = read_dictionary(folder / "dict.txt")
        settings = dict(zip(("gpt2_encoder_json", "gpt2_vocab_bpe"), self.files, strict=False))
        if len(self.files) == 1:
            settings = {"sentencepiece_model": self.files[0]}
        bpe = "gpt2" if len(self.files) == 2 else "sentencepiece"
        self.bpe = encoders.build_bpe(
            Namespace(bpe=bpe, **{key: str(path) for key, path in settings.items()})
        )
        self.lowercase = not self._has_capitals() if lowercase is None else lowercase

    def _has_capitals(self) -> bool:
        words = set(self.dictionary.symbols)
        if len(self.files) == 2:
            pieces = json.loads(self.files[0].read_text(encoding="utf-8"))
            words = {piece for piece, number in pieces.items() if str(number) in words}
        # ASCII only: GPT-2 represents a space by a letter that counts as a capital.
        return any(re.search("[A-Z]", word) for word in words)

    def encode(self, text: str) -> Tensor:
        """Ids of a text, without <s> and </s>; T."""
        pieces = self.bpe.encode(text.lower() if self.lowercase else text)
        return self.dictionary.encode_line(pieces, add_if_not_exist=False, append_eos=False)

    def copy_to(self, folder: Path) -> None:
        """Copy the tokenizer to the folder of a model."""
        for path in self.files:
            shutil.copy(path, folder / (SENTENCEPIECE if len(self.files) == 1 else path.name))


def find_files(folder: Path) -> list[Path]:
    """The files of the tokenizer: one for sentencepiece, two for GPT-2's BPE."""
    if (folder / SENTENCEPIECE).is_file():
        return [folder / SENTENCEPIECE]
    if all((folder / name).is_file() for name in GPT2):
        return [folder / name for name in GPT2]
    models = sorted(folder.glob("*.model"))
    if len(models) != 1:
        found = f"several models: {', '.join(m.name for m in models)}" if models else "neither"
        raise UsageError(
            f"BPE_DIR is {folder}, but must hold {SENTENCEPIECE} or {' and '.join(GPT2)}; it has "
            f"{found}."
        )
    return models


def read_dictionary(path: Path) -> Dictionary:
    """The dictionary of the pre-trained model.

    Raises:
        UsageError: it does not exist, or is not a dictionary.
    """
    if not path.is_file():
        raise UsageError(f"no {path}: copy it from the binarised text of the pre-trained model.")
    try:
        return Dictionary.load(str(path))
    except (ValueError, RuntimeError) as error:
        raise UsageError(f"{path} is not a fairseq dictionary: {error}") from error
