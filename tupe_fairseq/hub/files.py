"""What the hub reads: a checkpoint, and the dictionaries and tokenizer that lie beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fairseq import hub_utils
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from fairseq.tasks import TASK_REGISTRY

from ..checkpoints.reading import read_checkpoint, safe_checkpoint_globals
from ..checkpoints.settings import recorded_settings
from ..errors import UsageError

CHECKPOINTS = ("model.pt", "checkpoint_best.pt", "checkpoint_last.pt")
#: Tasks of fairseq that a checkpoint may name: they evaluate nothing.
TASKS = (
    "masked_lm",
    "sentence_prediction",
    "sentence_ranking",
    "translation",
    "language_modeling",
)
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


def recorded_task(checkpoint: Path, allowed: type) -> dict[str, Any]:
    """The task in a checkpoint's settings, after checking model and task against an allow-list.

    fairseq builds any model and task that a checkpoint names, and evaluates the settings of many
    as Python.

    Args:
        checkpoint: the file.
        allowed: class from which the model must be derived.

    Raises:
        UsageError: another model, or a task of fairseq's that is not in `TASKS`.
    """
    state = read_checkpoint(checkpoint)
    model, task = (recorded_settings(state, group, checkpoint) for group in ("model", "task"))
    refused = f"{checkpoint} is refused: its settings name "
    for name in _names(model, "arch") or [None]:
        cls = ARCH_MODEL_REGISTRY.get(str(name), MODEL_REGISTRY.get(str(name)))
        if cls is None or not issubclass(cls, allowed):
            known = [each for each, cls in MODEL_REGISTRY.items() if issubclass(cls, allowed)]
            raise UsageError(f"{refused}the model {name!r}, which is none of {', '.join(known)}.")
    for name in _names(task, "task"):
        cls = TASK_REGISTRY.get(str(name), type(None))
        if not isinstance(name, str) or (
            cls.__module__.startswith("fairseq.") and name not in TASKS
        ):
            raise UsageError(f"{refused}the task {name!r}, which is none of {', '.join(TASKS)}.")
    return {"_name": task.get("task"), **task}


def _names(settings: dict[str, Any], older: str) -> list[Any]:
    """What fairseq may take for the name of a model or task."""
    return [settings[key] for key in ("_name", older) if settings.get(key)]


def load_checkpoint(
    directory: Path, checkpoint_file: str, data: Path, **settings: Any
) -> dict[str, Any]:
    """By fairseq's hub: "models", "task" and "args".

    Raises:
        UsageError: the checkpoint does not hold what fairseq looks for in it.
    """
    try:
        with safe_checkpoint_globals():
            return hub_utils.from_pretrained(
                str(directory), checkpoint_file, str(data), **settings
            )
    except UsageError:
        raise
    # What fairseq makes of values that it does not expect can be any error.
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"[:300]
        raise UsageError(f"{directory / checkpoint_file} cannot be loaded: {reason}.") from error


def data_folders(directory: Path, given: str | Path | None, recorded: str | None) -> list[Path]:
    """Where dictionaries may lie, the likeliest first.

    Args:
        directory: of the checkpoint.
        given: by the user; where it begins with a dot, relative to the checkpoint's.
        recorded: the data that the model was trained on, parts of which are divided by colons.
    """
    if given is None:
        return [directory, *([Path(str(recorded).split(":")[0])] if recorded else [])]
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
