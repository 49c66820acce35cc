"""Load a checkpoint whose settings are not trusted: they run no code and open no other files."""

import warnings
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils
from fairseq.dataclass.configs import GenerationConfig
from fairseq.dataclass.utils import overwrite_args_by_name
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from fairseq.tasks import TASK_REGISTRY
from fairseq.utils import import_user_module
from omegaconf import DictConfig, OmegaConf, open_dict

from ...base.errors import CheckpointError, UsageError
from ..arguments.transformers import LANGUAGES
from ..checkpoints.reading import read_checkpoint, recorded_settings, safe_checkpoint_globals

#: Tasks of fairseq that a checkpoint may name: they do not evaluate settings as Python.
TASKS = (
    "masked_lm",
    "sentence_prediction",
    "sentence_ranking",
    "translation",
    "language_modeling",
)


def recorded_task(checkpoint: Path, allowed: type) -> dict[str, Any]:
    """The task in a checkpoint's settings, after checking model and task against an allow-list.

    Languages that the task does not record are those that the model does.

    fairseq builds any model and task that a checkpoint names, and evaluates the settings of many
    as Python.

    Args:
        checkpoint: the file.
        allowed: class from which the model must be derived.

    Raises:
        CheckpointError: another model, or a task of fairseq's that is not in `TASKS`.
    """
    state = read_checkpoint(checkpoint)
    model = recorded_settings(state, "model", checkpoint)
    task = recorded_settings(state, "task", checkpoint)
    refused = f"{checkpoint} cannot be loaded: its settings name "
    for name in _names(model, "arch") or [None]:
        cls = ARCH_MODEL_REGISTRY.get(str(name), MODEL_REGISTRY.get(str(name)))
        if cls is None or not issubclass(cls, allowed):
            known = (each for each, cls in MODEL_REGISTRY.items() if issubclass(cls, allowed))
            raise CheckpointError(f"{refused}the model {name!r}, not one of {', '.join(known)}.")
    for name in _names(task, "task"):
        cls = TASK_REGISTRY.get(str(name), type(None))
        of_fairseq = cls.__module__.startswith("fairseq.")
        if not isinstance(name, str) or (of_fairseq and name not in TASKS):
            raise CheckpointError(f"{refused}the task {name!r}, not one of {', '.join(TASKS)}.")
    languages = {name: task.get(name) or model.get(name) for name in LANGUAGES}
    return {"_name": task.get("task"), **task, **languages}


def _names(settings: dict[str, Any], older: str) -> list[Any]:
    """All settings that fairseq may use as the name of a model or task."""
    return [settings[key] for key in ("_name", older) if settings.get(key)]


def import_numpy_compat() -> None:
    """Import np.compat, which fairseq's data sets of blocks read and numpy 2 leaves out.

    numpy 2.3 no longer has it; setup.py therefore requires an older version.
    """
    with suppress(ImportError), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import numpy.compat  # noqa: F401


def load_checkpoint(
    checkpoint: Path, data: Path, task: dict[str, Any] | None = None, **settings: Any
) -> dict[str, Any]:
    """Load a checkpoint as fairseq's hub does, which returns "models", "task" and "args".

    What the checkpoint's own settings say of files, addresses and tokenizers is not used.

    Args:
        checkpoint: the file.
        data: directory of the dictionaries.
        task: settings of the task that replace those of the checkpoint.
        **settings: further ones of the caller.

    Raises:
        CheckpointError: fairseq cannot build the model or the task that the checkpoint describes.
    """
    import_numpy_compat()
    import_user_module(Namespace(user_dir=settings.get("user_dir")))
    try:
        with safe_checkpoint_globals():
            state = checkpoint_utils.load_checkpoint_to_cpu(str(checkpoint))
            _keep_to_folder(state["cfg"], {**(task or {}), "data": str(data)})
            # From which fairseq would make `cfg` again.
            state["args"] = None
            # `build_tokenizer` reads those of the tokenizer.
            left = {k: v for k, v in settings.items() if k not in ("bpe", "tokenizer")}
            overwrite_args_by_name(state["cfg"], left)
            models, cfg, built = checkpoint_utils.load_model_ensemble_and_task(
                [str(checkpoint)], state=state
            )
    except UsageError:
        raise
    # fairseq raises errors of any type for settings that it does not expect.
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"[:300]
        raise CheckpointError(f"{checkpoint} cannot be loaded: {reason}.") from error
    return {"args": cfg, "task": built, "models": models}


def _keep_to_folder(cfg: DictConfig, task: dict[str, Any]) -> None:
    """Drop the settings that name files, addresses and tokenizers, in place; set those of a task.

    `CheckedModel.build_model` drops those of the model.
    """
    with open_dict(cfg):
        cfg.bpe = None
        cfg.tokenizer = None
        cfg.generation = OmegaConf.structured(GenerationConfig)
        if isinstance(cfg.task, Namespace):
            vars(cfg.task).update(task)
        else:
            cfg.task.update(task)
