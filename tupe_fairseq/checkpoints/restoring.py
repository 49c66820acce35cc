"""The checkpoint that a training is about to restore, looked at before fairseq does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..arguments.flags import training_setting
from ..errors import UsageError
from .reading import read_checkpoint
from .whole import newest_whole_checkpoint

#: The value of --restore-file that means: the last checkpoint of --save-dir, if there is one.
DEFAULT_RESTORE_FILE = "checkpoint_last.pt"


def check_restore_file(args: Any) -> None:
    """Look at the checkpoint that training is about to restore, before fairseq does.

    fairseq ends in a traceback where it cannot read one. That there is none is found later, by
    the model itself (`TupeRobertaModel.forward`): fairseq may still look elsewhere.

    Raises:
        UsageError: the checkpoint is damaged, foreign, or would run code.
    """
    if (path := restored_file(args)).is_file():
        _read_restored(path)
    finetune_from = training_setting(args, "checkpoint", "finetune_from_model")
    if finetune_from and Path(finetune_from).is_file():
        read_checkpoint(finetune_from)


def end_if_finished(args: Any) -> None:
    """End a finished run, once its checkpoint is loaded and before its data are read.

    fairseq looks at --max-update after an update only, and would make one more at each start; of
    --max-epoch it says nothing.

    Raises:
        SystemExit: the checkpoint has --max-update updates or --max-epoch epochs; the status is 0.
    """
    path = restored_file(args)
    if not path.is_file():
        return
    state = read_checkpoint(path)
    updates, place = progress(state)
    for unit, done, reset in (
        ("update", updates, "reset_optimizer"),
        ("epoch", place.get("epoch", 1) - 1, "reset_dataloader"),
    ):
        most = training_setting(args, "optimization", f"max_{unit}")
        if most and done >= most and not training_setting(args, "checkpoint", reset):
            print(f"nothing left to train: --max-{unit} is {most}, and {done} are done")
            raise SystemExit(0)


def progress(state: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """How far a checkpoint has come.

    Returns:
        The updates that fairseq goes on from, none where the optimizer's state was not saved; and
        the place in the training data, as fairseq's iterator tells it.
    """
    history = state.get("optimizer_history") or [{}]
    updates = history[-1].get("num_updates", 0) if state.get("last_optimizer_state") else 0
    return updates, (state.get("extra_state") or {}).get("train_iterator") or {}


def restored_file(args: Any) -> Path:
    """The checkpoint that --restore-file stands for; it need not be there."""
    name = training_setting(args, "checkpoint", "restore_file") or DEFAULT_RESTORE_FILE
    folder = training_setting(args, "checkpoint", "save_dir") or ""
    return Path(folder, name) if name == DEFAULT_RESTORE_FILE else Path(name)


def _read_restored(path: Path) -> dict[str, Any]:
    """Read a checkpoint; where that fails, name the newest whole one beside it."""
    try:
        return read_checkpoint(path)
    except UsageError as error:
        newest = newest_whole_checkpoint(path.parent, besides=path)
        if newest is None:
            raise
        raise UsageError(
            f"{error} The newest whole checkpoint beside it is {newest.name}: copy it to "
            f"{path.name} to resume from it."
        ) from error
