"""What the hub reads: a checkpoint, and the dictionaries and tokenizer that lie beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import UsageError
from .safe_loading import read_checkpoint

CHECKPOINTS = ("model.pt", "checkpoint_best.pt", "checkpoint_last.pt")
#: Arguments that name the files of a tokenizer.
TOKENIZERS = ("sentencepiece_model", "gpt2_encoder_json", "gpt2_vocab_bpe")


def find_checkpoint(path: Path, name: str | None) -> tuple[Path, str]:
    """Directory and name of a checkpoint.

    Args:
        path: its directory, or the checkpoint itself.
        name: of the file; None: the first there is of `CHECKPOINTS`.

    Raises:
        UsageError: there is none.
    """
    path = path.absolute()
    if path.is_file() and name is None:
        return path.parent, path.name
    for candidate in [name] if name else CHECKPOINTS:
        if (path / candidate).is_file():
            return path, candidate
    raise UsageError(f"no checkpoint: {path} holds no {name or ', '.join(CHECKPOINTS)}.")


def recorded_task(checkpoint: Path) -> dict[str, Any]:
    """The task in the checkpoint's settings."""
    state = read_checkpoint(checkpoint)
    if state.get("args") is not None:
        recorded = vars(state["args"])
        return {"_name": recorded.get("task"), "data": recorded.get("data", "")}
    return dict((state.get("cfg") or {}).get("task") or {})


def data_folders(directory: Path, given: str | Path | None, recorded: str | None) -> list[Path]:
    """Where dictionaries may lie, the likeliest first.

    Args:
        directory: of the checkpoint.
        given: by the user; where it begins with a dot, relative to the checkpoint's.
        recorded: the data that the model was trained on, parts of which are divided by colons.
    """
    if given is None:
        return [directory, *([Path(recorded.split(":")[0])] if recorded else [])]
    return [directory / given if str(given).startswith(".") else Path(given).absolute()]


def find_tokenizer(directory: Path, bpe: str | None) -> dict[str, str]:
    """Arguments of the tokenizer whose files lie in the directory, or of the one named `bpe`.

    Raises:
        UsageError: several sentencepiece models lie there.
    """
    if bpe is not None:
        return {"bpe": bpe}
    models = sorted(directory.glob("*.model"))
    if len(models) > 1:
        raise UsageError(
            f"several sentencepiece models lie in {directory}: "
            f"{', '.join(m.name for m in models)}; pass bpe='sentencepiece' and "
            "sentencepiece_model=..."
        )
    if models:
        return {"bpe": "sentencepiece", "sentencepiece_model": str(models[0])}
    encoder, merges = directory / "encoder.json", directory / "vocab.bpe"
    if encoder.is_file() and merges.is_file():
        return {"bpe": "gpt2", "gpt2_encoder_json": str(encoder), "gpt2_vocab_bpe": str(merges)}
    return {}


@contextmanager
def reading_tokenizer(settings: dict[str, Any]) -> Iterator[None]:
    """Name the files of a tokenizer that cannot be read.

    Args:
        settings: arguments of the tokenizer, and others.

    Raises:
        UsageError: anything was raised inside.
    """
    try:
        yield
    # Which errors a damaged tokenizer ends in, its library says nowhere.
    except Exception as error:
        files = ", ".join(str(settings[name]) for name in TOKENIZERS if name in settings)
        if not files:
            raise
        raise UsageError(f"the tokenizer {files} is damaged, or is none: {error}.") from error


def check_text(*sentences: str) -> None:
    """Refuse what is no text: UTF-8 cannot hold it."""
    for sentence in sentences:
        try:
            sentence.encode("utf-8")
        except UnicodeEncodeError as error:
            raise UsageError(
                f"the text has {sentence[error.start]!r} at place {error.start}, half of a "
                "surrogate pair: it was decoded wrongly."
            ) from error
