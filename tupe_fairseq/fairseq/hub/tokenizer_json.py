"""`--bpe tokenizer_json`: a tokenizer of transformers in fairseq's pipeline.

`encode` returns ids of tokenizer.json, as fairseq's `gpt2` returns numbers. dict.txt has these ids
as its symbols, so that a text gets the same embeddings as in transformers.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairseq.data import Dictionary
from fairseq.data.encoders import register_bpe
from fairseq.dataclass import FairseqDataclass

from ...base.errors import DataError
from ...base.extras import import_extra

#: Special tokens of BERT and DeBERTa: fairseq's first four and the mask, whose names RoBERTa has.
SYMBOLS = {"[CLS]": "<s>", "[PAD]": "<pad>", "[SEP]": "</s>", "[UNK]": "<unk>", "[MASK]": "<mask>"}


def load_tokenizer(path: Path, contents: bytes | None = None) -> Any:
    """The tokenizer of a file, whose contents may have been read.

    Raises:
        UsageError: the library `tokenizers` is missing, the file cannot be read, or it has neither
            the special tokens of BERT nor those of RoBERTa.
    """
    library = import_extra("tokenizers", "hf")
    try:
        data = path.read_bytes() if contents is None else contents
        tokenizer = library.Tokenizer.from_str(data.decode())
    # The library raises Exception itself.
    except Exception as error:
        raise DataError(f"{path} cannot be read: {error}.") from error
    names = names_of(tokenizer)[:4]
    if lacking := [name for name in names if tokenizer.token_to_id(name) is None]:
        raise DataError(
            f"{path} has no {', '.join(lacking)}, so it is neither BERT's, DeBERTa's nor "
            "RoBERTa's: use the files of its model's own tokenizer, encoder.json and vocab.bpe or "
            "sentencepiece.bpe.model."
        )
    return tokenizer


def names_of(tokenizer: Any) -> list[str]:
    """The special tokens there, in the order of `SYMBOLS`.

    They are those around each text. Where these are not put there, BERT's are preferred.
    """
    bert = tokenizer.token_to_id("[SEP]") is not None
    bert = bert and "</s>" not in tokenizer.encode("").tokens
    return [*SYMBOLS] if bert else [*SYMBOLS.values()]


def special_ids(tokenizer: Any) -> list[Any]:
    """Ids of the special tokens, in the order of `SYMBOLS`; None for a mask that is missing."""
    return [tokenizer.token_to_id(name) for name in names_of(tokenizer)]


def order_of(tokenizer: Any, rows: int) -> list[int]:
    """The id there of each of fairseq's ids, whose first are special, of a model of `rows`."""
    first = special_ids(tokenizer)[:4]
    return [*first, *(number for number in range(rows) if number not in first)]


def symbols_of(tokenizer: Any, rows: int) -> list[str]:
    """The symbols of dict.txt for a model of `rows`: ids there, and the mask."""
    mask = special_ids(tokenizer)[4]
    return [
        "<mask>" if number == mask else str(number) for number in order_of(tokenizer, rows)[4:]
    ]


def separates_once(tokenizer: Any) -> bool:
    """Whether one </s> stands between two sentences; RoBERTa has two."""
    ends = tokenizer.encode("a", "b").ids.count(special_ids(tokenizer)[2])
    # Without a processor there are none.
    return ends == 2 or (not ends and "[SEP]" in names_of(tokenizer))


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
        self.path = Path(cfg.tokenizer_json)
        self.tokenizer = load_tokenizer(self.path)
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.symbols = dict(zip(special_ids(self.tokenizer), SYMBOLS.values(), strict=True))
        self.added = self.tokenizer.get_added_tokens_decoder()
        model = json.loads(self.tokenizer.to_str())["model"]
        #: What begins the parts of a word but the first; "" where a mark begins words.
        self.prefix = model.get("continuing_subword_prefix") or ""

    @property
    def separates_once(self) -> bool:
        """See the function."""
        return separates_once(self.tokenizer)

    def check_dictionary(self, dictionary: Dictionary) -> None:
        """Compare with a dictionary, whose symbols must be the ids in their order.

        Raises:
            DataError: it belongs to another tokenizer; ids would be those of other tokens.
        """
        size = max(self.tokenizer.get_vocab().values()) + 1
        symbols = dictionary.symbols[dictionary.nspecial :]
        for index, expected in enumerate(symbols_of(self.tokenizer, size)):
            symbol = symbols[index] if index < len(symbols) else "nothing"
            if symbol != expected:
                raise DataError(
                    f"{self.path} is not the tokenizer of dict.txt, which has {symbol!r} in place "
                    f"of its id {expected!r}: remove it, or convert its model by --from "
                    "huggingface."
                )

    def encode(self, x: str) -> str:
        """Ids of a text, separated by spaces; without the special tokens around it."""
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
                text = self.tokenizer.decode(ids, skip_special_tokens=False)
                # The library keeps it at the beginning of a text.
                parts.append(text if self._begins_word(ids[0]) else text.removeprefix(self.prefix))
                ids = []
            parts += [word] if word else []
        return " ".join(parts)

    def is_beginning_of_word(self, x: str) -> bool:
        """Whether a token begins a word: for --mask-whole-words."""
        return not x.isdigit() or self._begins_word(int(x))

    def _begins_word(self, number: int) -> bool:
        token = self.tokenizer.id_to_token(number)
        if token is None or number in self.added or number in self.symbols:
            return True
        if self.prefix:
            return not token.startswith(self.prefix)
        # Of sentencepiece, and of byte-pair encoding of bytes.
        return token.startswith(("▁", "Ġ"))
