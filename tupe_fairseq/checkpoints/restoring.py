"""Check the checkpoint that a training is about to restore, before fairseq reads it."""

from argparse import Namespace
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils

from ..arguments.completion import position_options
from ..arguments.declaration import ModelArguments, training_setting
from ..errors import CheckpointError
from .changes import warn_of_changes
from .intact import newest_intact_checkpoint
from .reading import read_checkpoint, recorded_settings

#: This value of --restore-file means the last checkpoint in --save-dir, if there is one.
DEFAULT_RESTORE_FILE = "checkpoint_last.pt"


def check_restore_file(model: ModelArguments, args: Any, complete: Namespace) -> None:
    """Check that the checkpoint of --restore-file or --finetune-from-model can be used.

    fairseq shows a traceback if it cannot be read, and silently loads the checkpoint of
    another encoding if neither has parameters. A checkpoint that is missing is reported later, by
    the model (`CheckedModel.forward`), because fairseq may look for it elsewhere.

    Other options that differ from the recorded ones are named in a warning.

    Raises:
        CheckpointError: the checkpoint is damaged, not fairseq's, or would run code; or it has
            another position encoding or --tie-cls.
    """
    finetune_from = training_setting(args, "checkpoint", "finetune_from_model")
    if finetune_from and (path := Path(finetune_from)).is_file():
        recorded = recorded_settings(read_checkpoint(path), "model", path)
        _check_encoding(recorded, path, complete)
        # Otherwise, fairseq goes on from that file.
        if not restored_file(args).is_file():
            warn_of_changes(model, complete, recorded, path)
    if (path := restored_file(args)).is_file():
        recorded = recorded_settings(_read_restored(path), "model", path)
        _check_encoding(recorded, path, complete)
        warn_of_changes(model, complete, recorded, path)


def forget_earlier_runs() -> None:
    """Remove the best scores of earlier runs of this process, as in a sweep of hydra's.

    fairseq keeps them in attributes of its functions. The next run would write no
    checkpoint_best.pt and end too early by --patience.
    """
    # Its import configures logging. Commands that train have imported it.
    from fairseq_cli.train import should_stop_early

    vars(should_stop_early).clear()
    vars(checkpoint_utils.save_checkpoint).clear()


def restored_file(args: Any) -> Path:
    """The path that --restore-file refers to; the file may be missing."""
    name = training_setting(args, "checkpoint", "restore_file") or DEFAULT_RESTORE_FILE
    folder = training_setting(args, "checkpoint", "save_dir") or ""
    return Path(folder, name) if name == DEFAULT_RESTORE_FILE else Path(name)


def _check_encoding(recorded: dict[str, Any], path: Path, complete: Namespace) -> None:
    encoding = complete.position_encoding
    other = _encoding_of(recorded)
    if other not in (None, encoding):
        raise CheckpointError(
            f"--position-encoding is {encoding!r}, but {path} was trained with {other!r}: give "
            "that encoding, or train from scratch."
        )
    # --extend-positions would take the rows of an untied [CLS] for positions.
    tied, other = position_options(complete).get("tie_cls"), recorded.get("tie_cls")
    if None not in (tied, other) and bool(tied) != bool(other):
        raise CheckpointError(f"--tie-cls is {tied}, but {path} was trained with {other}.")


def _encoding_of(recorded: dict[str, Any]) -> str | None:
    """The encoding of a checkpoint; None for a stock model whose parameters tell it.

    Stock fairseq records none. Its sinusoids are no parameters.
    """
    if "position_encoding" in recorded:
        return recorded["position_encoding"]
    if not str(recorded.get("_name") or recorded.get("arch")).startswith("transformer"):
        return None
    if recorded.get("no_token_positional_embeddings"):
        return "none"
    learned = recorded.get("encoder_learned_pos") or recorded.get("decoder_learned_pos")
    return "learned" if learned else "sinusoidal"


def _read_restored(path: Path) -> dict[str, Any]:
    """Read a checkpoint. If that fails, the error names the newest intact one beside it."""
    try:
        return read_checkpoint(path)
    except CheckpointError as error:
        newest = newest_intact_checkpoint(path.parent, besides=path)
        if newest is None:
            raise
        raise CheckpointError(
            f"{error} The newest intact checkpoint beside it is {newest.name}: copy it to "
            f"{path.name} to resume from it."
        ) from error
