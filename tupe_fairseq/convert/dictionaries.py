"""dict.txt: one token and its count per line; a token's id follows from its line.

The dictionary of a model of transformers has the ids of its tokenizer.json as tokens, but the
special ones first. `order` is then the id there of each id of fairseq.
"""

import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from fairseq.data import Dictionary
from torch import Tensor

from ..base.errors import DataError
from ..fairseq.checks import read_dictionary
from ..fairseq.hub.files import PREPROCESSING, TOKENIZER, find_tokenizer, lowercases
from ..fairseq.hub.tokenizer_json import (
    TokenizerJson,
    TokenizerJsonConfig,
    load_tokenizer,
    names_of,
    order_of,
    special_ids,
    symbols_of,
)
from ..position import POSITION_ENCODINGS
from .carried import DICTIONARY, LABELS
from .models import EMBED_TOKENS, ENCODER, LM_HEAD, OUTPUT, Converted
from .tokenizer_files import CONFIG, KINDS, config_of, files_of, ignores_case

#: Ids 0 to 3 of every fairseq dictionary, which dict.txt leaves out.
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
MASK = "<mask>"
#: At the end of a line, makes fairseq accept a repeated token; both lines keep their id.
OVERWRITE = "#fairseq:overwrite"
#: Symbols that fairseq-preprocess adds to round the size.
FILLER = r"madeupword\d{4}"
#: Parameters with a row for each token, beside those of the position encoding.
ROWS = (
    EMBED_TOKENS,
    OUTPUT,
    f"{LM_HEAD}decoder.bias",
)


def dictionary_of(tokens: Iterable[str], counts: Iterable[int] | None = None) -> Dictionary:
    """A dictionary of the special symbols and these tokens; repeated ones have several ids."""
    tokens = list(tokens)
    dictionary = Dictionary()
    for token, count in zip(tokens, counts or [1] * len(tokens), strict=True):
        dictionary.add_symbol(token, count, overwrite=True)
    return dictionary


def dictionary_text(dictionary: Dictionary) -> bytes:
    """Contents of dict.txt; repeated tokens are marked, so that every token keeps its id."""
    seen = set(SPECIAL)
    lines = []
    first = dictionary.nspecial
    for token, count in zip(dictionary.symbols[first:], dictionary.count[first:], strict=True):
        again = f" {OVERWRITE}" if token in seen else ""
        seen.add(token)
        lines.append(f"{token} {count}{again}\n")
    return "".join(lines).encode()


def check_size(dictionary: Dictionary, rows: int, path: str | Path) -> None:
    """Compare the number of symbols with the rows of the token embeddings.

    fairseq's task appends `<mask>` to a dict.txt that lacks it.

    Raises:
        DataError: the numbers differ.
    """
    symbols = len(dictionary) + (MASK not in dictionary)
    if symbols != rows:
        raise DataError(
            f"{path} has {symbols} symbols, but the checkpoint has embeddings for {rows}: use the "
            "dict.txt that the checkpoint was trained with."
        )


def read_labels(dictionary: Path, folder: Path) -> list[str]:
    """Names of classes by number, from the label/dict.txt of the first of these that has one.

    Args:
        dictionary: path of the model's dict.txt, which data has in input0/.
        folder: of the checkpoint.

    Raises:
        UsageError: it cannot be read.
    """
    data = dictionary.parent
    for place in (folder, data.parent if data.name == "input0" else data):
        path = place / LABELS
        if path.is_file():
            labels = read_dictionary(path)
            names = labels.symbols[labels.nspecial :]
            return [name for name in names if not re.fullmatch(FILLER, name)]
    return []


def dictionary_for(converted: Converted) -> tuple[Dictionary, list[int]]:
    """The dictionary of a model that is written for fairseq, and its order; empty: the same.

    It is dict.txt where ids are fairseq's, or else has the ids of the tokenizer.

    Raises:
        DataError: there is neither, a file is damaged, or the number of tokens differs.
    """
    settings = converted.settings
    source = converted.source
    rows = settings["vocab_size"]
    text = converted.files.get(DICTIONARY)
    if settings["pad_token_id"] == 1 and text is not None:
        dictionary = Dictionary()
        try:
            dictionary.add_from_file(io.TextIOWrapper(io.BytesIO(text), encoding="utf-8"))
        # fairseq raises errors of any type.
        except Exception as error:
            raise DataError(f"{source / DICTIONARY} cannot be loaded: {error}.") from error
        check_size(dictionary, rows, source / DICTIONARY)
        return dictionary, []
    if not converted.tokenizer:
        given = "give --dict, or " if settings["pad_token_id"] == 1 else ""
        raise DataError(
            f"{source} has no tokenizer: save it there, or {given}add --to huggingface, which "
            "needs none."
        )
    tokenizer = load_tokenizer(source / TOKENIZER, converted.tokenizer[TOKENIZER])
    special = special_ids(tokenizer)
    if special[4] is None:
        raise DataError(f"the tokenizer of {source} has no mask token.")
    ids = [settings[f"{kind}_token_id"] for kind in ("bos", "pad", "eos")]
    if special[:3] != ids:
        raise DataError(
            f"the tokenizer of {source} has special tokens of other names than "
            f"{', '.join(names_of(tokenizer))}: ids {special[:3]} instead of {ids}."
        )
    return dictionary_of(symbols_of(tokenizer, rows)), order_of(tokenizer, rows)


def order_beside(folder: Path, dictionary: Dictionary, rows: int) -> list[int]:
    """The order of a directory of fairseq with tokenizer.json; empty if it has none.

    Raises:
        UsageError: it is damaged, or is not that of the dictionary.
    """
    if find_tokenizer(folder).get("bpe") != "tokenizer_json":
        return []
    bpe = TokenizerJson(TokenizerJsonConfig(tokenizer_json=str(folder / TOKENIZER)))
    bpe.check_dictionary(dictionary)
    return order_of(bpe.tokenizer, rows)


def reordered(converted: Converted, rows: Sequence[int]) -> dict[str, Tensor]:
    """The parameters with the rows of tokens in another order; empty: as they are."""
    encoding = POSITION_ENCODINGS[converted.settings["position_encoding"]]
    tables = {*ROWS, *(f"{ENCODER}embed_positions.{name}" for name in encoding.token_tables)}
    return {
        name: value[rows] if rows and name in tables and len(value) == len(rows) else value
        for name, value in converted.state.items()
    }


def inverse(order: Sequence[int]) -> list[int]:
    """The id of fairseq of each id of the tokenizer."""
    return sorted(range(len(order)), key=order.__getitem__)


def tokenizer_beside(converted: Converted) -> dict[str, bytes]:
    """The files of the tokenizer.json in a directory of fairseq.

    Without a tokenizer_config.json, one makes transformers take all of it.

    Raises:
        DataError: texts are lowercased before it, which transformers would not do.
    """
    files = files_of(converted.source)
    folder = converted.source
    tokenizer = load_tokenizer(folder / TOKENIZER)
    if lowercases(folder) and not ignores_case(tokenizer):
        raise DataError(
            f"{folder / PREPROCESSING} lowercases texts, but {TOKENIZER} does not, and would be "
            'written alone: write {"lowercase": false}, and lowercase texts yourself.'
        )
    if CONFIG not in files:
        names = dict(zip(KINDS, names_of(tokenizer), strict=True))
        names |= {"bos": names["cls"], "eos": names["sep"]}
        names = {kind: n for kind, n in names.items() if tokenizer.token_to_id(n) is not None}
        longest = converted.settings["max_position_embeddings"]
        files[CONFIG] = config_of(names, longest, converted.has_types)
    return files
