"""Fast tokenizers of transformers with fairseq's ids: tokenizer.json, tokenizer_config.json.

Texts get the ids that fairseq's `--bpe sentencepiece` or `--bpe gpt2` and dict.txt give them, with
two exceptions. As for all models of transformers, special symbols written in a text, such as
`<mask>`, are read as special symbols. With sentencepiece, the ids can differ at combining marks
that are not in Unicode's canonical order, or that follow a sign of several letters (`ﬁ`, `㎏`) or
a control character that is removed, and at parts of Hangul syllables; with a unigram model, also
where two ways to split a text have the same score, between which rounding in 32 bits decides, and
where special symbols or bytes (`<0x41>`) are written in a text in capitals or in full.

Importing this needs tokenizers (extra `hf`).
"""

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from fairseq.data import Dictionary
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from ..base.errors import DataError
from ..fairseq.hub.files import GPT2, SENTENCEPIECE, TOKENIZER, find_tokenizer
from ..fairseq.hub.tokenizer_json import names_of
from .dictionaries import FILLER, MASK, SPECIAL
from .sentencepiece_models import is_unigram, pieces_of, read_sentencepiece, unsupported
from .tokenizer_files import CONFIG, GENERIC, config_of

SPACE = "▁"
#: What Python's `str.split` splits at, without the space.
WHITESPACE = "[\t-\r\x1c-\x1f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
#: The places before characters that belong to the one before them.
MARK = r"(?<!\A)(?=[\p{M}\x{200C}\x{200D}\x{FF9E}\x{FF9F}\x{1F3FB}-\x{1F3FF}])"
#: The end of a text that is not empty.
END = r"(?<!\A)\z"
#: Names of bytes, of which sentencepiece makes unknown characters if it is told to.
BYTE = re.compile("<0x[0-9A-F]{2}>")
#: A code point that Unicode reserves for use inside of programs.
SEPARATOR = "\U0010ffff"
#: Special tokens by the names of transformers.
NAMES = {
    "bos": "<s>",
    "cls": "<s>",
    "eos": "</s>",
    "sep": "</s>",
    "pad": "<pad>",
    "unk": "<unk>",
    "mask": MASK,
}


def write_tokenizer(
    folder: Path,
    source: Path,
    dictionary: Dictionary,
    longest: int,
    lower_case: bool = False,
    types: bool = False,
    separator: bool | None = None,
) -> str:
    """Write the tokenizer whose files are in `source`, for a model of at most `longest` tokens.

    With `lower_case`, it lowercases texts, as that of training was. With `types`, the second text
    of a pair has token type 1. `separator` is whether a second </s> separates two texts; None: if
    there are no types.

    Returns:
        A note for the user: why no tokenizer was written, or what it does not read; or "".
    """
    ids = dict(dictionary.indices)
    # As fairseq's task adds it.
    ids.setdefault(MASK, len(dictionary))
    note = ""
    try:
        named = find_tokenizer(source)
        if model := named.get("sentencepiece_model"):
            tokenizer = from_sentencepiece(Path(model), ids)
            note = _unread(Path(model), ids, tokenizer)
        elif named.get("bpe") == "gpt2":
            tokenizer = from_gpt2(source / GPT2[0], source / GPT2[1], ids)
        else:
            raise DataError(f"{source} holds no {SENTENCEPIECE} or {' with '.join(GPT2)}.")
    except DataError as error:
        return f"no tokenizer was written, so AutoTokenizer has nothing to load: {error}"
    if lower_case:
        # The library lowercases each letter by itself.
        sigma = normalizers.Replace(Regex(r"(?<=[\p{L}\p{M}])Σ(?![\p{L}\p{M}])"), "ς")
        steps = [sigma, normalizers.Lowercase(), tokenizer.normalizer]
        tokenizer.normalizer = normalizers.Sequence([s for s in steps if s is not None])
    # A space before the mask belongs to it.
    mask = AddedToken(MASK, lstrip=True, special=True, normalized=False)
    tokenizer.add_special_tokens([*SPECIAL, mask])
    tokenizer.post_processor = pairing(tokenizer, types, separator)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / CONFIG).write_bytes(config_of(NAMES, longest, types))
    return note


def _unread(path: Path, ids: Mapping[str, int], tokenizer: Tokenizer) -> str:
    """A note about symbols that a unigram model does not know, or ""."""
    kept = tokenizer.get_vocab()
    unread = [each for each in ids if each not in kept and not re.fullmatch(FILLER, each)]
    if not unread:
        return ""
    return (
        f"dict.txt has {len(unread)} symbols that are no pieces of {path.name}, as {unread[0]!r}: "
        "tokenizer.json reads them as <unk>"
    )


def from_sentencepiece(path: Path, ids: dict[str, int]) -> Tokenizer:
    """A tokenizer of a sentencepiece model.

    Raises:
        DataError: tokenizer.json cannot express the model, or the dictionary lacks a piece.
    """
    if reason := unsupported(path):
        raise DataError(f"{path} has {reason}.")
    model = read_sentencepiece(path)
    scores = pieces_of(model, "NORMAL")
    bytes_ = model.trainer_spec.byte_fallback
    own = pieces_of(model, "USER_DEFINED")
    _check_complete(pieces_of(model, "NORMAL", "USER_DEFINED", "BYTE"), ids, path)
    if is_unigram(model):
        vocabulary = _scored({**scores, **_always_taken(own, scores)}, ids)
        core: Any = models.Unigram(vocabulary, ids["<unk>"], bytes_)
    else:
        how = {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": bytes_}
        core = models.BPE(vocab=ids, merges=_merges(scores), **how)
    tokenizer = Tokenizer(core)
    tokenizer.normalizer = _normalizer(model)
    _set_spaces(tokenizer, model, [*scores, *own])
    return tokenizer


def _normalizer(model: Any) -> normalizers.Normalizer:
    """Rules, spaces in a row, and the mark of spaces."""
    rules = model.normalizer_spec
    suffix = model.trainer_spec.treat_whitespace_as_suffix
    steps = by_rules(rules.precompiled_charsmap) if rules.precompiled_charsmap else []
    if rules.remove_extra_whitespaces:
        steps += [normalizers.Replace(Regex(" +"), " ")]
        steps += [normalizers.Replace(Regex(r"\A | \z"), "")]
    if rules.add_dummy_prefix:
        steps += [normalizers.Replace(Regex(END), " ") if suffix else normalizers.Prepend(" ")]
    return normalizers.Sequence([*steps, normalizers.Replace(" ", SPACE)])


def _set_spaces(tokenizer: Tokenizer, model: Any, pieces: Collection[str]) -> None:
    """Where texts are split before they become pieces, and how pieces are joined."""
    suffix = model.trainer_spec.treat_whitespace_as_suffix
    splits = []
    inner = slice(-1) if suffix else slice(1, None)
    if not any(SPACE in piece[inner] for piece in pieces):
        side: Any = "merged_with_previous" if suffix else "merged_with_next"
        splits.append(pre_tokenizers.Split(SPACE, side))
    if not model.trainer_spec.byte_fallback:
        # fairseq reads pieces from a line of text, in which these characters separate them.
        splits.append(pre_tokenizers.Split(Regex(WHITESPACE), "removed"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits)
    strip = [decoders.Strip(" ", int(not suffix), int(suffix))]
    strip = strip if model.normalizer_spec.add_dummy_prefix else []
    fuse = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*fuse, *strip])


def _always_taken(own: Collection[str], scores: Mapping[str, float]) -> dict[str, float]:
    """Scores by which sentencepiece prefers user-defined symbols to all other pieces."""
    best = max(scores.values())
    return {symbol: len(symbol.encode()) * best - 0.1 for symbol in own}


def _scored(scores: Mapping[str, float], ids: Mapping[str, int]) -> list[tuple[str, float]]:
    """The vocabulary of a unigram model, by ids; symbols that are no pieces stand in no text."""
    names = {number: symbol for symbol, number in ids.items()}
    # The library scores unknown characters by the lowest score.
    lowest = min(scores.values())
    named = {*SPECIAL, MASK}
    scored = []
    for number in range(max(names) + 1):
        symbol = names.get(number, "")
        if symbol in scores or symbol in named or BYTE.fullmatch(symbol):
            scored.append((symbol, scores.get(symbol, lowest)))
        else:
            scored.append((f"{symbol} {number}", lowest))
    return scored


def _merges(scores: dict[str, float]) -> list[tuple[str, str]]:
    """All pairs of pieces that form a piece, the best first."""
    # Of equal scores, sentencepiece merges the leftmost pair first, whatever its parts are.
    return [
        (piece[:cut], piece[cut:])
        for piece in sorted(scores, key=lambda piece: -scores[piece])
        for cut in range(1, len(piece))
        if piece[:cut] in scores and piece[cut:] in scores
    ]


def by_rules(charsmap: bytes) -> list[normalizers.Normalizer]:
    """Steps that apply sentencepiece's rules of normalisation.

    The library replaces a letter with its marks by what the rules say of the letter alone, so it
    is given each character by itself. These steps do not compose letters and marks; NFC does.
    """
    return [
        normalizers.Replace(Regex(MARK), SEPARATOR),
        normalizers.Precompiled(charsmap),
        normalizers.Replace(SEPARATOR, ""),
        normalizers.NFC(),
    ]


def from_gpt2(encoder: Path, merges: Path, ids: dict[str, int]) -> Tokenizer:
    """A tokenizer of GPT-2's byte-pair encoding, whose symbols in the dictionary are numbers.

    Raises:
        DataError: a file cannot be read, or the dictionary lacks a symbol.
    """
    try:
        numbers, pairs = models.BPE.read_file(str(encoder), str(merges))
    # The library raises Exception itself.
    except Exception as error:
        raise DataError(f"{encoder} or {merges} cannot be read: {error}.") from error
    symbols = {token: str(number) for token, number in numbers.items()}
    # It stands in no text: GPT-2's own code adds it.
    symbols.pop("<|endoftext|>", None)
    _check_complete(symbols.values(), ids, encoder)
    renamed = set(symbols.values())
    vocabulary = {symbol: number for symbol, number in ids.items() if symbol not in renamed}
    vocabulary |= {token: ids[symbol] for token, symbol in symbols.items()}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _check_complete(pieces: Collection[str], ids: dict[str, int], path: Path) -> None:
    """A piece without an id would need that of `<unk>`, which tokenizer.json cannot express."""
    lacking = [piece for piece in pieces if piece not in ids]
    if lacking:
        raise DataError(
            f"dict.txt lacks {len(lacking)} of the {len(pieces)} pieces of {path.name}, "
            f"{lacking[0]!r} for instance; fairseq-preprocess --srcdict with all pieces, before "
            "training, avoids this."
        )


def pairing(tokenizer: Tokenizer, types: bool, separator: bool | None = None) -> Any:
    """Where special symbols stand in one text and in two, as the hub interface joins them.

    `types` and `separator` are those of `write_tokenizer`.
    """
    names = names_of(tokenizer)
    start = names[0]
    end = names[2]
    second = ":1" if types else ""
    if separator is None:
        separator = not types
    between = f"{end}{second} " if separator else ""
    return processors.TemplateProcessing(
        single=f"{start} $A {end}",
        pair=f"{start} $A {end} {between}$B{second} {end}{second}",
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in (start, end)],
    )


def paired(files: Mapping[str, bytes], types: bool, separator: bool) -> dict[str, bytes]:
    """The files of a tokenizer of transformers that joins two texts as `write_tokenizer` does."""
    tokenizer = Tokenizer.from_str(files[TOKENIZER].decode())
    tokenizer.post_processor = pairing(tokenizer, types, separator)
    # Other classes join texts in their own way.
    config = json.loads(files[CONFIG]) | {"tokenizer_class": GENERIC}
    written = {TOKENIZER: tokenizer.to_str(), CONFIG: json.dumps(config, indent=2) + "\n"}
    return {**files, **{name: text.encode() for name, text in written.items()}}
