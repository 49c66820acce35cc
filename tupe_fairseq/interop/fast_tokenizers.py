"""Fast tokenizers of transformers with fairseq's ids: tokenizer.json, tokenizer_config.json.

Texts get the ids that fairseq's `--bpe sentencepiece` or `--bpe gpt2` and dict.txt give them, with
two exceptions. As for all models of transformers, special symbols written in a text, such as
`<mask>`, are read as special symbols. With sentencepiece, the ids can differ at combining marks
that are not in Unicode's canonical order, or that follow a sign of several letters (`ﬁ`, `㎏`) or
a control character that is removed, and at parts of Hangul syllables.

Importing this needs tokenizers (extra `hf`).
"""

import json
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

from ..errors import DataError
from ..hub.files import GPT2, SENTENCEPIECE, TOKENIZER
from ..hub.tokenizer_json import names_of
from .dictionaries import MASK, SPECIAL
from .tokenizer_files import CONFIG, GENERIC, config_of

SPACE = "▁"
#: What Python's `str.split` splits at, without the space.
WHITESPACE = "[\t-\r\x1c-\x1f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
#: The places before characters that belong to the one before them.
MARK = r"(?<!\A)(?=[\p{M}\x{200C}\x{200D}\x{FF9E}\x{FF9F}\x{1F3FB}-\x{1F3FF}])"
#: A code point that Unicode reserves for use inside of programs.
SEPARATOR = "\U0010ffff"
#: Special tokens by the names of transformers; those of masked language models alone.
NAMES = {"eos": "</s>", "pad": "<pad>", "unk": "<unk>"}
ENCODER_NAMES = {"bos": "<s>", "cls": "<s>", "sep": "</s>", "mask": MASK}


def write_tokenizer(
    folder: Path,
    source: Path,
    dictionary: Dictionary,
    longest: int,
    lower_case: bool = False,
    start: str | None = None,
    types: bool = False,
    separator: bool | None = None,
) -> str:
    """Write the tokenizer whose files are in `source`, for a model of at most `longest` tokens.

    With `lower_case`, it lowercases texts, as that of training was. `start` is the symbol before a
    text that a language model continues; None for masked language models. With `types`, the second
    text of a pair has token type 1. `separator` is whether a second </s> separates two texts;
    None: if there are no types.

    Returns:
        A note for the user: why no tokenizer was written, or "".
    """
    ids = dict(dictionary.indices)
    if start is None:
        # As fairseq's task adds it.
        ids.setdefault(MASK, len(dictionary))
    try:
        if (source / SENTENCEPIECE).is_file():
            tokenizer = from_sentencepiece(source / SENTENCEPIECE, ids)
        elif all((source / name).is_file() for name in GPT2):
            tokenizer = from_gpt2(source / GPT2[0], source / GPT2[1], ids)
        else:
            raise DataError(f"{source} holds no {SENTENCEPIECE} or {' with '.join(GPT2)}.")
    except DataError as error:
        return f"no tokenizer was written, so AutoTokenizer has nothing to load: {error}"
    if lower_case:
        steps = [normalizers.Lowercase(), tokenizer.normalizer]
        tokenizer.normalizer = normalizers.Sequence([s for s in steps if s is not None])
    _add_symbols(tokenizer, ids, start)
    if start is None:
        tokenizer.post_processor = pairing(tokenizer, types, separator)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = NAMES | (ENCODER_NAMES if start is None else {"bos": start})
    (folder / CONFIG).write_bytes(config_of(names, longest, types))
    return ""


def from_sentencepiece(path: Path, ids: dict[str, int]) -> Tokenizer:
    """A tokenizer of a sentencepiece model of the type bpe.

    Raises:
        DataError: the file has another type, or a piece that the dictionary lacks.
    """
    model = read_sentencepiece(path)
    trainer, rules, kinds = model.trainer_spec, model.normalizer_spec, model.SentencePiece.Type
    if trainer.model_type != trainer.BPE or (
        trainer.byte_fallback or trainer.treat_whitespace_as_suffix
    ):
        raise DataError(f"{path} is not a sentencepiece model of the type bpe.")
    if any(piece.type == kinds.USER_DEFINED for piece in model.pieces):
        raise DataError(f"{path} has user-defined symbols, which are not supported.")
    scores = {piece.piece: piece.score for piece in model.pieces if piece.type == kinds.NORMAL}
    _check_complete(scores, ids, path)
    merges = _merges(scores)
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=merges, unk_token="<unk>", fuse_unk=True))
    charsmap = rules.precompiled_charsmap
    steps = by_rules(charsmap) if charsmap else []
    if rules.remove_extra_whitespaces:
        steps += [normalizers.Replace(Regex(" +"), " ")]
        steps += [normalizers.Replace(Regex(r"\A | \z"), "")]
    steps += [normalizers.Prepend(SPACE)] if rules.add_dummy_prefix else []
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", SPACE)])
    words = pre_tokenizers.Split(SPACE, "merged_with_next")
    # fairseq reads pieces from a line of text, in which these characters separate them.
    between = pre_tokenizers.Split(Regex(WHITESPACE), "removed")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, between])
    strip = [decoders.Strip(" ", 1, 0)] if rules.add_dummy_prefix else []
    tokenizer.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.Fuse(), *strip])
    return tokenizer


def _merges(scores: dict[str, float]) -> list[tuple[str, str]]:
    """All pairs of pieces that form a piece, the best first."""
    # Of equal scores, sentencepiece merges the leftmost pair first, whatever its parts are.
    return [
        (piece[:cut], piece[cut:])
        for piece in sorted(scores, key=lambda piece: -scores[piece])
        for cut in range(1, len(piece))
        if piece[:cut] in scores and piece[cut:] in scores
    ]


def read_sentencepiece(path: Path) -> Any:
    """The contents of a sentencepiece model, as its library describes them (`ModelProto`).

    Raises:
        DataError: the file is not such a model, or protobuf is missing or too old.
    """
    try:
        from google.protobuf.message import DecodeError
        from sentencepiece import sentencepiece_model_pb2
    # protobuf refuses a description of a later version by an error of its own.
    except Exception as error:
        reason = str(error).partition(". ")[0]
        raise DataError(f"{path} needs pip install --upgrade protobuf: {reason}.") from error
    description: Any = sentencepiece_model_pb2
    try:
        return description.ModelProto.FromString(path.read_bytes())
    except (DecodeError, ValueError) as error:
        raise DataError(f"{path} is not a sentencepiece model: {error}.") from error


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


def _add_symbols(tokenizer: Tokenizer, ids: dict[str, int], start: str | None) -> None:
    """The special symbols, and where they stand in a text of a language model."""
    symbols: list[Any] = list(SPECIAL)
    if start is None:
        # A space before the mask belongs to it.
        symbols.append(AddedToken(MASK, lstrip=True, special=True, normalized=False))
    tokenizer.add_special_tokens(symbols)
    if start is not None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{start} $A", pair=f"{start} $A $B", special_tokens=[(start, ids[start])]
        )


def pairing(tokenizer: Tokenizer, types: bool, separator: bool | None = None) -> Any:
    """Where special symbols stand in one text and in two, as the hub interface joins them.

    `types` and `separator` are those of `write_tokenizer`.
    """
    names = names_of(tokenizer)
    start, end = names[0], names[2]
    second = ":1" if types else ""
    between = f"{end}{second} " if (not types if separator is None else separator) else ""
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
