"""`--bpe tokenizer_json`: a tokenizer of transformers in fairseq's pipeline.

`encode` returns ids of tokenizer.json, as fairseq's `gpt2` returns numbers. dict.txt has these ids
as its symbols, so that a text gets the same embeddings as in transformers.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairseq.data.encoders import register_bpe
from fairseq.dataclass import FairseqDataclass

from ..errors import DataError
from ..extras import import_extra

#: DeBERTa's symbols, in the order of fairseq's first four, and the mask.
SYMBOLS = {"[CLS]": "<s>", "[PAD]": "<pad>", "[SEP]": "</s>", "[UNK]": "<unk>", "[MASK]": "<mask>"}


def load_tokenizer(path: Path) -> Any:
    """The tokenizer of a file.

    Raises:
        UsageError: the library `tokenizers` is missing, the file cannot be read, or it has not the
            symbols of DeBERTa.
    """
    library = import_extra("tokenizers", "hf")
    try:
        tokenizer = library.Tokenizer.from_file(str(path))
    # The library raises Exception itself.
    except Exception as error:
        raise DataError(f"{path} cannot be read: {error}.") from error
    if lacking := [symbol for symbol in SYMBOLS if tokenizer.token_to_id(symbol) is None]:
        raise DataError(
            f"{path} has no {', '.join(lacking)}, so it is not DeBERTa's: use the files of its "
            "model's own tokenizer, encoder.json and vocab.bpe or sentencepiece.bpe.model."
        )
    return tokenizer


@dataclass
class TokenizerJsonConfig(FairseqDataclass):
    """The flag of `--bpe tokenizer_json`."""

    tokenizer_json: str = field(default="???", metadata={"help": "path of tokenizer.json"})


@register_bpe("tokenizer_json", dataclass=TokenizerJsonConfig)
class TokenizerJson:
    """The tokenizer of a file.

    Raises:
        UsageError: see `load_tokenizer`.
    """

    def __init__(self, cfg: TokenizerJsonConfig):
        self.tokenizer = load_tokenizer(Path(cfg.tokenizer_json))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.symbols = {self.tokenizer.token_to_id(each): own for each, own in SYMBOLS.items()}

    def encode(self, x: str) -> str:
        """Ids of a text, separated by spaces; without [CLS] and [SEP]."""
        ids = self.tokenizer.encode(x, add_special_tokens=False).ids
        return " ".join(self.symbols.get(number, str(number)) for number in ids)

    def decode(self, x: str) -> str:
        """The text of ids; special symbols of fairseq's stay as they are."""
        parts: list[str] = []
        ids: list[int] = []
        for word in [*x.split(), ""]:
            if word.isascii() and word.isdigit():
                ids.append(int(word))
                continue
            if ids:
                parts.append(self.tokenizer.decode(ids))
                ids = []
            parts += [word] if word else []
        return " ".join(parts)

    def is_beginning_of_word(self, x: str) -> bool:
        """Whether a token begins a word: for --mask-whole-words."""
        if not x.isdigit():
            return True
        token = self.tokenizer.id_to_token(int(x))
        return token is None or token.startswith("▁") or token.startswith("[")
