"""Fast tokenizers of transformers with fairseq's ids: tokenizer.json, tokenizer_config.json.

Texts get the ids that fairseq's `--bpe sentencepiece` or `--bpe gpt2` and dict.txt give them, with
two exceptions. As for all models of transformers, special symbols written in a text, such as
`<mask>`, are read as special symbols. With sentencepiece, the ids can differ at combining marks
that are not in Unicode's canonical order, or that follow a sign of several letters (`ﬁ`, `㎏`) or
a control character that is removed, and at parts of Hangul syllables.

Importing this needs tokenizers (extra `hf`).
"""

from collections.abc import Collection
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
from ..hub.files import GPT2, SENTENCEPIECE
from .dictionaries import MASK, SPECIAL
from .tokenizer_files import CONFIG, config_of

SPACE = "▁"
#: What Python's `str.split` splits at, without the space.
WHITESPACE = "[\t-\r\x1c-\x1f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
#: The places before characters that belong to the one before them.
MARK = r"(?<!\A)(?=[\p{M}\x{200C}\x{200D}\x{FF9E}\x{FF9F}\x{1F3FB}-\x{1F3FF}])"
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
) -> str:
    """Write the tokenizer whose files are in `source`, for a model of at most `longest` tokens.

    With `lower_case`, it lowercases texts, as that of training was. With `types`, the second text
    of a pair has token type 1.

    Returns:
        A note for the user: why no tokenizer was written, or "".
    """
    ids = dict(dictionary.indices)
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
    _add_symbols(tokenizer, ids, types)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / CONFIG).write_bytes(config_of(NAMES, longest, types))
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


def _add_symbols(tokenizer: Tokenizer, ids: dict[str, int], types: bool) -> None:
    """The special symbols, and where they stand in one text and in two."""
    # A space before the mask belongs to it.
    mask = AddedToken(MASK, lstrip=True, special=True, normalized=False)
    # As the hub interface joins two texts.
    single, pair = "<s> $A </s>", "<s> $A </s> </s> $B </s>"
    pair = "<s> $A </s> $B:1 </s>:1" if types else pair
    tokenizer.add_special_tokens([*SPECIAL, mask])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(each, ids[each]) for each in ("<s>", "</s>")]
    )
