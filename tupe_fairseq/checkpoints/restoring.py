"""Check the checkpoint that a training is about to restore, before fairseq reads it."""

from argparse import Namespace
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils

from ..arguments.training import TrainingSettings
from ..errors import CheckpointError
from ..options import Option
from .changes import refuse_changes, warn_of_changes
from .intact import newest_intact_checkpoint
from .reading import read_checkpoint, recorded_settings


def check_restored(
    training: TrainingSettings, options: Iterable[Option], complete: Namespace
) -> None:
    """Check that the checkpoint of --restore-file or --finetune-from-model can be used.

    fairseq shows a traceback if it cannot be read, and silently loads the checkpoint of
    another encoding if neither has parameters. A checkpoint that is missing is reported later, by
    the model (`CheckedModel.forward`), because fairseq may look for it elsewhere.

    Args:
        training: the settings that name the checkpoints.
        options: of the model. Those that differ from the recorded ones are named in a warning.
        complete: their values.

    Raises:
        CheckpointError: the checkpoint is damaged, not fairseq's, or would run code; or it has
            another value of an option that is fixed, as --position-encoding is.
    """
    restored = training.restored_file
    named = (restored, Path(training.finetune_from_model or ""))
    sources = [path for path in dict.fromkeys(named) if path.is_file()]
    for path in sources:
        state = _read_restored(path) if path == restored else read_checkpoint(path)
        recorded = recorded_settings(state, "model", path)
        known = {"position_encoding": _stock_encoding(recorded), **recorded}
        refuse_changes(options, complete, known, path)
        # fairseq goes on from --restore-file if that file is there.
        if path == sources[0]:
            warn_of_changes(options, complete, recorded, path)


def forget_earlier_runs() -> None:
    """Remove the best scores of earlier runs of this process, as in a sweep of hydra's.

    fairseq keeps them in attributes of its functions. The next run would write no
    checkpoint_best.pt and end too early by --patience.
    """
    # Its import configures logging. Commands that train have imported it.
    from fairseq_cli.train import should_stop_early

    vars(should_stop_early).clear()
    vars(checkpoint_utils.save_checkpoint).clear()


def _stock_encoding(recorded: Mapping[str, Any]) -> str | None:
    """The encoding of stock fairseq's transformers, whose sinusoids are no parameters.

    None for other models: the parameters show their encoding, or they record it.
    """
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
