"""`--bpe tokenizer_json`: a tokenizer of transformers in fairseq's pipeline.

`encode` returns ids of tokenizer.json, as fairseq's `gpt2` returns numbers. dict.txt has these ids
as its symbols, so that a text gets the same embeddings as in transformers.
"""

from dataclasses import dataclass, field
from pathlib import Path

from fairseq.data.encoders import register_bpe
from fairseq.dataclass import FairseqDataclass

from ..errors import DataError
from ..extras import import_extra

#: Symbols of a text that are fairseq's own.
SYMBOLS = {"[CLS]": "<s>", "[PAD]": "<pad>", "[SEP]": "</s>", "[UNK]": "<unk>", "[MASK]": "<mask>"}


@dataclass
class TokenizerJsonConfig(FairseqDataclass):
    """The flag of `--bpe tokenizer_json`."""

    tokenizer_json: str = field(default="???", metadata={"help": "path of tokenizer.json"})


@register_bpe("tokenizer_json", dataclass=TokenizerJsonConfig)
class TokenizerJson:
    """The tokenizer of a file.

    Raises:
        UsageError: the library `tokenizers` is missing, or the file cannot be read.
    """

    def __init__(self, cfg: TokenizerJsonConfig):
        library = import_extra("tokenizers", "hf")
        try:
            self.tokenizer = library.Tokenizer.from_file(str(Path(cfg.tokenizer_json)))
        # The library raises Exception itself.
        except Exception as error:
            raise DataError(f"{cfg.tokenizer_json} cannot be read: {error}.") from error
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        ids = ((self.tokenizer.token_to_id(there), here) for there, here in SYMBOLS.items())
        self.symbols = {number: here for number, here in ids if number is not None}

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
