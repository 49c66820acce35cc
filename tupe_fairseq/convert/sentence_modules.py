"""What sentence-transformers does to texts and features, by its files, and what a program does.

Files of its versions 2 to 6: version 6 writes lower case and the longest text into the tokenizer,
and the kind of pooling under one name.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..base.errors import ConfigurationError, DataError
from .carried import MODEL, MODULES, SENTENCES

#: The modules that options of a program stand for, in their order.
KNOWN = ("Transformer", "Pooling", "Normalize")
#: What sentence-transformers called the kinds of pooling before its version 6, in the order in
#: which their vectors are joined.
MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
#: Settings of its Transformer that are known here, or change no vector.
SETTINGS = (
    "max_seq_length",
    "do_lower_case",
    "transformer_task",
    "modality_config",
    "module_output_name",
    "unpad_inputs",
)
#: The features that are pooled.
FEATURES = {"method": "forward", "method_output_name": "last_hidden_state"}


@dataclass(frozen=True)
class SentenceModel:
    """What the files say.

    Attributes:
        modules: their names, in the order in which they run.
        modes: kinds of pooling, whose vectors are joined.
        prompt: what stands before each text by default.
        pools_prompt: whether the tokens of a prompt are pooled.
        lower_case: whether texts are lowercased before the tokenizer.
        longest: the number of tokens at which texts are cut; None: that of the tokenizer.
        dimension: how many values of a vector are kept; None: all.
        others: further settings, which have no counterpart here.
    """

    modules: tuple[str, ...]
    modes: tuple[str, ...]
    prompt: str
    pools_prompt: bool
    lower_case: bool
    longest: int | None
    dimension: int | None
    others: tuple[str, ...]


def read_sentence_model(files: Mapping[str, bytes]) -> SentenceModel | None:
    """What the files of a model say; None without modules.json.

    Args:
        files: as `sentence_files` has read them.

    Raises:
        DataError: a file is damaged or missing.
    """
    if MODULES not in files:
        return None
    modules = [(_kind(str(each.get("type"))), each["path"]) for each in json.loads(files[MODULES])]
    pooling = {}
    path = dict(modules).get("Pooling")
    if path is not None:
        pooling = _read(files, Path(path, "config.json").as_posix())
    modes = pooling.get("pooling_mode") or [n for old, n in MODES.items() if pooling.get(old)]
    text = _read(files, next(filter(files.__contains__, SENTENCES), None))
    model = _read(files, MODEL if MODEL in files else None)
    try:
        return SentenceModel(
            modules=tuple(kind for kind, _ in modules),
            modes=(modes,) if isinstance(modes, str) else tuple(modes or ["mean"]),
            prompt=(model.get("prompts") or {}).get(model.get("default_prompt_name")) or "",
            pools_prompt=pooling.get("include_prompt", True),
            lower_case=bool(text.get("do_lower_case")),
            longest=_number(text.get("max_seq_length")),
            dimension=_number(model.get("truncate_dim")),
            others=_others(text),
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise DataError(f"a setting beside {MODULES} has an invalid value: {error}.") from error


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


def _kind(name: str) -> str:
    """The name of a class of sentence-transformers; that of another class with its module."""
    own = name.startswith("sentence_transformers.")
    return name.rpartition(".")[2] if own else name


def _others(text: Mapping[str, Any]) -> tuple[str, ...]:
    """Settings of the Transformer that are not known here and not empty."""
    unknown = [name for name, value in text.items() if name not in SETTINGS and value]
    features = text.get("modality_config", {}).get("text", FEATURES)
    return (*unknown, *["modality_config"] * (features != FEATURES))


def _read(files: Mapping[str, bytes], name: str | None) -> dict[str, Any]:
    """The contents of a file; empty without a name."""
    if name is None:
        return {}
    try:
        return dict(json.loads(files[name]))
    except KeyError as error:
        raise DataError(f"{MODULES} needs {name}, but there is no such file.") from error
    except (ValueError, TypeError) as error:
        raise DataError(f"{name} cannot be read: {error}.") from error


def compare_modules(model: SentenceModel, pooling: str, normalize: bool) -> list[str]:
    """Where the options of a program differ from those of sentence-transformers.

    Args:
        model: of sentence-transformers.
        pooling: "mean" or "cls".
        normalize: whether the program's embeddings have unit length.

    Raises:
        ConfigurationError: the model has something that a program lacks.
    """
    lacking = [each for each in model.modules if each not in KNOWN] + list(model.others)
    if model.modules != KNOWN[: len(model.modules)] and not lacking:
        lacking = ["another order of modules"]
    if model.prompt and not model.pools_prompt:
        lacking.append("a prompt that is not pooled (include_prompt)")
    if lacking:
        raise ConfigurationError(
            f"--pooling is {pooling!r}, but {MODULES} also has {', '.join(lacking)}, which a "
            "program lacks: use --pooling none, and compute the rest from the features."
        )
    notes = []
    if "Pooling" in model.modules and model.modes != (pooling,):
        own = " and ".join(model.modes)
        notes.append(f"{MODULES} has the pooling {own}, but this program {pooling}")
    if normalize != ("Normalize" in model.modules):
        there, here = ("does not", "does") if normalize else ("does", "does not")
        notes.append(f"{MODULES} {there} normalize embeddings, but this program {here}")
    if model.dimension:
        notes.append(f"embeddings have their first {model.dimension} values (truncate_dim)")
    same = "as sentence-transformers does; other programs must too"
    return notes + [f"examples.huggingface.serve {what}, {same}" for what in _of_texts(model)]


def text_notes(model: SentenceModel, here: str, longest: int) -> list[str]:
    """What sentence-transformers does to texts and `here`, which reads `longest` tokens, not."""
    told = _of_texts(model)
    if model.longest and model.longest < longest:
        told.append(f"cuts texts at {model.longest} tokens")
    return [f"sentence-transformers {what}, but {here} does not" for what in told]


def _of_texts(model: SentenceModel) -> list[str]:
    told = ["lowercases texts"] if model.lower_case else []
    return told + ([f"puts {model.prompt!r} before each text"] if model.prompt else [])
