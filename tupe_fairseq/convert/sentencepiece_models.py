"""Models of sentencepiece: what they contain, and whether tokenizer.json can express it."""

from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceNormalizer

from ..base.errors import DataError
from .dictionaries import MASK, SPECIAL


def read_sentencepiece(path: Path) -> Any:
    """The contents of a model, as its library describes them (`ModelProto`).

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


def is_unigram(model: Any) -> bool:
    """Whether it is a model of the type unigram, the default of sentencepiece."""
    return bool(model.trainer_spec.model_type == model.trainer_spec.UNIGRAM)


def unsupported(path: Path) -> str:
    """What tokenizer.json cannot express of a model; empty if there is nothing.

    Raises:
        DataError: see `read_sentencepiece`.
    """
    model = read_sentencepiece(path)
    if model.trainer_spec.model_type == model.trainer_spec.WORD:
        return "the type word; train it with --model_type unigram or bpe"
    # Special symbols are so in transformers anyway.
    special = (*SPECIAL, MASK)
    symbols = [each for each in pieces_of(model, "USER_DEFINED") if each not in special]
    if symbols and not is_unigram(model):
        return (
            f"user-defined symbols, as {symbols[0]!r}, of another type than unigram; train it "
            "with --model_type unigram, or without --user_defined_symbols"
        )
    spaces: Any = {"add_dummy_prefix": False, "remove_extra_whitespaces": False}
    rules = SentencePieceNormalizer(str(path), escape_whitespaces=False, **spaces)
    if changed := [symbol for symbol in symbols if rules.normalize(symbol) != symbol]:
        return (
            f"the user-defined symbol {changed[0]!r}, which its rules of normalisation change in "
            "other texts; train it with --normalization_rule_name identity, or without the symbol"
        )
    return ""


def pieces_of(model: Any, *kinds: str) -> dict[str, float]:
    """Pieces of these types with their scores."""
    numbers = [getattr(model.SentencePiece.Type, kind) for kind in kinds]
    return {piece.piece: piece.score for piece in model.pieces if piece.type in numbers}
