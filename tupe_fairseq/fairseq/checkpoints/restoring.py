"""Check the checkpoint that a training starts from, before fairseq reads it.

Most options have no parameters, so the checkpoint loads with other values of them, and another
model than the trained one goes on. How far an option may differ is declared: `options.Mark`.
"""

import logging
from argparse import Namespace
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils
from fairseq.distributed.utils import get_global_rank
from torch import nn

from ...base.errors import CheckpointError
from ...base.options import Mark, Option
from ...position import POSITION_ENCODINGS
from ...position.deleted import refuse_deleted
from ..arguments.training import TrainingSettings
from .intact import newest_intact_checkpoint
from .reading import read_checkpoint, recorded_settings

#: Options of fairseq that have no parameters either, and the sizes: the error of a checkpoint that
#: does not fit follows, and names parameters.
STOCK = (
    *(
        Option(f"{side}_{size}", int, None, "")
        for side in ("encoder", "decoder")
        for size in ("layers", "embed_dim", "ffn_embed_dim", "attention_heads")
    ),
    Option("activation_fn", str, None, ""),
    Option("no_scale_embedding", bool, False, ""),
)
logger = logging.getLogger(__name__)


def check_restored(
    training: TrainingSettings, options: Collection[Option], complete: Namespace
) -> list[str]:
    """Check that the checkpoint of --restore-file or --finetune-from-model can be used.

    fairseq shows a traceback if it cannot be read, and silently loads the checkpoint of
    another encoding if neither has parameters. A checkpoint that is missing is reported later, by
    the model (`CheckedModel.forward`), because fairseq may look for it elsewhere.

    One warning names the options that differ from the recorded ones. Stock fairseq's checkpoints
    record no encoding, and are compared with fairseq's own options only.

    Args:
        training: the settings that name the checkpoints.
        options: of the model.
        complete: their values.

    Returns:
        The names in the model of --restore-file, in their order; empty without that file.

    Raises:
        CheckpointError: the checkpoint is damaged, not fairseq's, or would run code; or it has
            another value of an option that is fixed, as --position-encoding is.
        ConfigurationError: it has an encoding or an option that is deleted.
    """
    restored = training.restored_file
    named = (restored, Path(training.finetune_from_model or ""))
    sources = [path for path in dict.fromkeys(named) if path.is_file()]
    names: list[str] = []
    for path in sources:
        state = _read_restored(path) if path == restored else read_checkpoint(path)
        names = list(state["model"]) if path == restored else names
        recorded = recorded_settings(state, "model", path)
        POSITION_ENCODINGS.refuse_deleted(recorded.get("position_encoding"))
        refuse_deleted(recorded, {option.name for option in options})
        known = {"position_encoding": _stock_encoding(recorded), **recorded}
        changes = _changes(options, complete, known, path)
        if "position_encoding" not in recorded:
            changes = []
        stock = (each for each in STOCK if each.name in recorded and hasattr(complete, each.name))
        changes += _changes(stock, complete, recorded, path)
        # fairseq goes on from --restore-file if that file is there.
        if changes and path == sources[0] and get_global_rank() == 0:
            logger.warning(
                "%s was trained with other options, and this training changes its model: %s",
                path,
                "; ".join(changes),
            )
    return names


def follow_order(model: nn.Module, names: Iterable[str]) -> None:
    """Register the submodules of a model in the order of these names, others after them.

    The state of an optimizer numbers the parameters in the order of their registration, which in
    stock fairseq's models is another one.
    """
    place: dict[str, int] = {}
    for name in names:
        while name:
            place.setdefault(name, len(place))
            name = name.rpartition(".")[0]
    for path, module in list(model.named_modules()):
        prefix = f"{path}." if path else ""
        children = list(module._modules)
        children.sort(key=lambda child: place.get(prefix + child, len(place)))
        module._modules = {child: module._modules[child] for child in children}


def _changes(
    options: Iterable[Option], complete: Namespace, recorded: Mapping[str, Any], path: Path
) -> list[str]:
    """What differs from a checkpoint, in words. Options that it does not record had their default.

    Raises:
        CheckpointError: a fixed option differs.
    """
    free = {Mark.FREE}
    # Whether options for longer texts acted in training.
    if recorded.get("extend_positions") != "toeplitz" and recorded.get("rope_scaling") is None:
        free.add(Mark.FOR_LONGER_TEXTS)
    changes = []
    for option in options:
        flag = option.flag
        now = getattr(complete, option.name)
        then = recorded.get(option.name)
        if then is not None and now != then and Mark.FIXED in option.marks:
            raise CheckpointError(
                f"{flag} is {now!r}, but {path} was trained with {then!r}: give that value, or "
                "train from scratch."
            )
        then = option.default if then is None else then
        if now == then or not free.isdisjoint(option.marks):
            continue
        if then is None:
            way_back = f"leave out {flag}"
        elif option.name.startswith("no_") and not then:
            # Flags of fairseq have no second form.
            way_back = f"leave out {flag}"
        elif option.type is bool:
            way_back = "pass " + (flag if then else flag.replace("--", "--no-", 1))
        else:
            way_back = f"pass {flag} {then}"
        changes.append(f"{flag} is {now!r}, but was {then!r} (to keep it, {way_back})")
    return changes


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
