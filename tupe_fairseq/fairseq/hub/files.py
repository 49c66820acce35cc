"""Files that the hub reads: a checkpoint, and the dictionaries and tokenizer beside it.

Importing this needs no fairseq.
"""

import json
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from ...base.errors import CheckpointError, ConfigurationError, DataError, UsageError

SENTENCEPIECE = "sentencepiece.bpe.model"
GPT2 = ("encoder.json", "vocab.bpe")
TOKENIZER = "tokenizer.json"
#: Beside a dict.txt: what was done to the texts before they were split into pieces.
PREPROCESSING = "preprocessing.json"
CHECKPOINTS = ("model.pt", "checkpoint_best.pt", "checkpoint_last.pt")
#: Files of tokenizers, and the arguments that name them.
FILES_OF_TOKENIZERS = {
    SENTENCEPIECE: "sentencepiece_model",
    **dict(zip(GPT2, ("gpt2_encoder_json", "gpt2_vocab_bpe"), strict=True)),
    TOKENIZER: "tokenizer_json",
    # Of fairseq's fastbpe, subword_nmt and hf_byte_bpe.
    "code": "bpe_codes",
    "bpecodes": "bpe_codes",
    "merges.txt": "bpe_merges",
    "vocab.json": "bpe_vocab",
}


def find_checkpoint(path: Path, name: str | None = None) -> Path:
    """The path of a checkpoint.

    Args:
        path: its directory, or the checkpoint itself.
        name: of the file; by default the first of `CHECKPOINTS` that exists.

    Raises:
        CheckpointError: there is no such file.
    """
    path = path.absolute()
    if path.is_file() and name is None:
        return path
    for candidate in [name] if name else CHECKPOINTS:
        if (path / candidate).is_file():
            return path / candidate
    if not path.exists():
        raise CheckpointError(f"no checkpoint: {path} does not exist.")
    raise CheckpointError(f"no checkpoint: {path} holds no {name or ', '.join(CHECKPOINTS)}.")


def build_tokenizer(kind: str, settings: dict[str, Any]) -> Any:
    """The tokenizer of the kind "bpe" or "tokenizer" that the caller's settings name.

    Returns:
        None if they name none.

    Raises:
        UsageError: there is none of this name; a file is not named, or cannot be loaded.
    """
    from fairseq.data import encoders
    from fairseq.registry import REGISTRIES
    from omegaconf import MISSING

    name = settings.get(kind)
    registered = REGISTRIES[kind]
    if name is not None and name not in registered["registry"]:
        known = ", ".join(sorted(registered["registry"]))
        raise ConfigurationError(f"{kind} is {name!r}, but must be one of: {known}.")
    declared = registered["dataclass_registry"].get(name)
    arguments = fields(declared) if declared else ()
    for argument in arguments:
        if argument.default == MISSING and settings.get(argument.name) is None:
            raise ConfigurationError(
                f"{kind} is {name!r}, but {argument.name} is missing: pass its file, or copy it "
                "beside the checkpoint."
            )
    files = [str(settings[each.name]) for each in arguments if each.name in settings]
    try:
        return getattr(encoders, f"build_{kind}")(Namespace(**settings))
    except UsageError:
        raise
    # The libraries do not document what a damaged tokenizer raises.
    except Exception as error:
        if not files:
            raise
        raise DataError(f"the tokenizer {', '.join(files)} cannot be loaded: {error}.") from error


def find_dictionaries(
    directory: Path,
    wanted: str | Path | None,
    recorded: str | None,
    alternatives: Sequence[tuple[str, ...]],
) -> tuple[Path, tuple[str, ...]]:
    """The folder that holds the dictionaries, and their names, all of which can be read.

    Args:
        directory: of the checkpoint.
        wanted: by the user; relative to the checkpoint's directory if it begins with a dot.
        recorded: the training data, which the error names; nothing is read from there.
        alternatives: names of the files that a model needs, the preferred ones first.

    Raises:
        DataError: there are none, or one cannot be read.
    """
    from ..checks import read_dictionary

    folder = directory
    if wanted is not None:
        folder = directory / wanted if str(wanted).startswith(".") else Path(wanted).absolute()
    for names in alternatives:
        if all((folder / name).is_file() for name in names):
            for name in names:
                read_dictionary(folder / name)
            return folder, names
    needed = " or ".join(" and ".join(names) for names in alternatives)
    trained = f" (it was trained on {recorded})" if recorded else ""
    raise DataError(
        f"no dictionary: {folder} does not hold {needed}; copy it from the training data, or pass "
        f"its folder as data_name_or_path{trained}."
    )


def find_tokenizer(directory: Path) -> dict[str, str]:
    """Arguments of the tokenizer whose files are in a directory; empty if there is none.

    Raises:
        DataError: the directory holds several sentencepiece models, none of the usual name.
    """
    usual = directory / SENTENCEPIECE
    models = [usual] if usual.is_file() else sorted(directory.glob("*.model"))
    if len(models) > 1:
        names = ", ".join(model.name for model in models)
        raise DataError(
            f"{directory} holds several models: {names}; rename one to {SENTENCEPIECE}, or pass "
            "bpe='sentencepiece' and sentencepiece_model=... to from_pretrained."
        )
    if models:
        return {"bpe": "sentencepiece", "sentencepiece_model": str(models[0])}
    encoder, merges = (directory / name for name in GPT2)
    if encoder.is_file() and merges.is_file():
        return {"bpe": "gpt2", "gpt2_encoder_json": str(encoder), "gpt2_vocab_bpe": str(merges)}
    if (directory / TOKENIZER).is_file():
        return {"bpe": "tokenizer_json", "tokenizer_json": str(directory / TOKENIZER)}
    return {}


def choose_tokenizer(bpe: str | None, *folders: Path) -> dict[str, str]:
    """Arguments of the tokenizer named ``bpe``, or else of that in the first folder with one.

    Raises:
        DataError: see `find_tokenizer`.
    """
    if bpe is None:
        return next(filter(None, map(find_tokenizer, folders)), {})
    there = {
        argument: str(folder / name)
        for folder in reversed(folders)
        for name, argument in FILES_OF_TOKENIZERS.items()
        if (folder / name).is_file()
    }
    return {**there, "bpe": bpe}


def preprocessing_record(**known: bool | None) -> bytes:
    """Contents of preprocessing.json: "lowercase" and "separator", where they are known."""
    known = {name: value for name, value in known.items() if value is not None}
    return (json.dumps(known) + "\n").encode()


def record_preprocessing(folder: Path, lowercase: bool) -> None:
    """Record in a folder of data or of a model whether its texts are lowercased."""
    (folder / PREPROCESSING).write_bytes(preprocessing_record(lowercase=lowercase))


def lowercases(*folders: Path) -> bool | None:
    """Whether texts are lowercased, by the first folder that records it; None where none does.

    Raises:
        DataError: the record is damaged.
    """
    return _recorded("lowercase", folders)


def separates(task: Mapping[str, Any], *folders: Path) -> bool | None:
    """Whether a second </s> separates two sentences.

    The settings of the training know it, or else the first folder that records it; None where
    neither does.

    Raises:
        DataError: the record is damaged.
    """
    if "separator_token" in task:
        return task["separator_token"] is not None
    return _recorded("separator", folders)


def _recorded(name: str, folders: Sequence[Path]) -> bool | None:
    for path in (folder / PREPROCESSING for folder in folders):
        if not path.is_file():
            continue
        try:
            value = json.loads(path.read_text(encoding="utf-8")).get(name)
        except (ValueError, AttributeError):
            value = ""
        if not isinstance(value, bool | None):
            raise DataError(f'{path} is damaged: it must be {{"{name}": true}} or false.')
        if value is not None:
            return value
    return None


def check_text(*sentences: str) -> None:
    """Check that strings can be encoded as UTF-8.

    Raises:
        DataError: a string holds half of a surrogate pair.
    """
    for sentence in sentences:
        try:
            sentence.encode("utf-8")
        except UnicodeEncodeError as error:
            raise DataError(
                f"the text has {sentence[error.start]!r} at index {error.start}, which is half of "
                "a surrogate pair: decode the text as UTF-8."
            ) from error
