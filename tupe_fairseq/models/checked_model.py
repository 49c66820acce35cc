"""What the models look at before fairseq does, so that faults end in one line."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from .. import commands
from ..arguments.flags import check_keys, training_setting
from ..checkpoints.mismatch import explain_mismatch
from ..checkpoints.restoring import DEFAULT_RESTORE_FILE, check_restore_file, end_if_finished
from ..checks.data import check_data
from ..errors import UsageError
from .transformer_parts import check_transformer, fill_position_options


class CheckedModel:
    """Mixin before fairseq's class of models; `args` holds the flags."""

    args: Any
    #: Encoder and decoder, and the argument of their longest input.
    stacks: Mapping[str, str]
    _loaded = False

    @commands.ends_commands_in_one_line
    def forward(self, *args, **kwargs):
        """As fairseq's.

        Raises:
            UsageError: too long or left-padded input; training with a --restore-file that named
                no file, where fairseq would start from scratch with exit status 0.
        """
        if self.training and not self._loaded:
            path = training_setting(self.args, "checkpoint", "restore_file")
            if path not in (None, DEFAULT_RESTORE_FILE):
                raise UsageError(
                    f"--restore-file is {str(path)!r}, but no such file was loaded (looked in "
                    f"{Path.cwd()}); give a path that exists, or leave it out to start from "
                    "scratch."
                )
        return super().forward(*args, **kwargs)

    @commands.ends_commands_in_one_line
    def load_state_dict(self, state_dict, strict=True, model_cfg=None, args=None):
        """Load a state dict, of fairseq's own model too; what does not fit is told in one line.

        Raises:
            UsageError: it belongs to another encoding, number of positions, dictionary or shape.
        """
        try:
            result = super().load_state_dict(state_dict, strict, model_cfg, args)
        except RuntimeError as error:
            raise UsageError(explain_mismatch(self, state_dict, self.stacks)) from error
        self._loaded = True
        if commands.current() == "train":
            end_if_finished(self.args)
        return result


@contextmanager
def completed(
    cls: type, args: Any, name: str, apply: Callable[[str, Any], None]
) -> Iterator[Namespace]:
    """Check and complete arguments in place; yields them flat, as fairseq's classes read them.

    Args:
        cls: the model.
        args: a Namespace (command line) or DictConfig (hydra).
        name: of the model, which is also that of its default architecture.
        apply: fills in an architecture.

    Raises:
        UsageError: arguments, data or a checkpoint that cannot be used.
    """
    known = Namespace()
    apply(name, known)
    check_keys(args, cls, known=set(vars(known)) | {"max_target_positions", "add_bos_token"})
    check_transformer(args, name)
    if commands.current() == "train":
        check_restore_file(args)
        check_data(training_setting(args, "task", "data") or "")
    with open_dict(args) if OmegaConf.is_config(args) else nullcontext():
        apply(name, args)
        # Its older name.
        args.activation_dropout = args.activation_dropout or getattr(args, "relu_dropout", 0.0)
        fill_position_options(args)
        yield Namespace(**args) if isinstance(args, DictConfig) else args
