"""What all models share: building from arguments, and checks whose errors are one line."""

from argparse import Namespace
from pathlib import Path
from typing import Any

from fairseq.data import Dictionary
from fairseq.models import BaseFairseqModel

from ...base.errors import CheckpointError, ConfigurationError
from .. import commands
from ..arguments.checks import check_tpu, scalar_noise_without_gpu
from ..arguments.completion import completed, write_back
from ..arguments.declaration import ModelArguments
from ..arguments.training import DEFAULT_RESTORE_FILE, TrainingSettings
from ..checkpoints.mismatch import explain_mismatch, explain_ties
from ..checkpoints.restoring import check_restored, follow_order, forget_earlier_runs
from ..checks import check_data

#: Settings that name files of embeddings with which a training begins.
EMBEDDINGS = ("encoder_embed_path", "decoder_embed_path")


class CheckedModel(BaseFairseqModel):
    """Mixin before fairseq's class of models."""

    #: What the model takes as arguments.
    arguments: ModelArguments
    #: Names of encoder and decoder in the model.
    stacks: tuple[str, ...]
    #: fairseq's object with the arguments, completed; other settings can be read from it too.
    args: Any
    #: The --restore-file that must be loaded before training begins, if one was named.
    awaited_checkpoint: str | None = None
    #: Why the model cannot run here, though it can be loaded and converted.
    unusable: str | None = None

    @classmethod
    def add_args(cls, parser: Any) -> None:
        """Add stock fairseq's flags and ours."""
        cls.arguments.add_flags(parser)

    @classmethod
    @commands.ends_commands_in_one_line
    def build_model(cls, args: Any, task: Any) -> "CheckedModel":
        """Build a model from a Namespace (command line) or DictConfig (hydra).

        The values that were completed are entered in ``args``; see `completion.write_back`.

        Raises:
            UsageError: arguments, data or a checkpoint that cannot be used.
        """
        training = TrainingSettings.read(args)
        complete = completed(cls.arguments, args, training, task)
        names: list[str] = []
        if commands.current() == "train":
            check_tpu(training.tpu)
            forget_earlier_runs()
            options = cls.arguments.options_with(complete.position_encoding)
            names = check_restored(training, options, complete)
            if training.data:
                check_data(training.data, cls.data_dictionary(task))
        else:
            # The settings are a checkpoint's, whose parameters replace these embeddings.
            vars(complete).update({name: None for name in EMBEDDINGS if hasattr(complete, name)})
        unusable = scalar_noise_without_gpu(complete.quant_noise_scalar)
        if unusable and commands.current():
            raise ConfigurationError(unusable)
        model = cls.from_arguments(complete, task)
        if names:
            follow_order(model, names)
        model.unusable = unusable
        write_back(args, complete)
        model.args = args
        if training.restore_file not in (None, DEFAULT_RESTORE_FILE):
            model.awaited_checkpoint = str(training.restore_file)
        return model

    @classmethod
    def from_arguments(cls, args: Namespace, task: Any) -> "CheckedModel":
        """Build a model from complete arguments."""
        raise NotImplementedError

    @classmethod
    def data_dictionary(cls, task: Any) -> Dictionary | None:
        """The dictionary of all sentences of the data, or None where there are several."""
        return None

    @commands.ends_commands_in_one_line
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """As fairseq's.

        Raises:
            UsageError: invalid input; --quant-noise-scalar without a GPU; or training with a
                --restore-file that was not loaded, where fairseq would start from scratch with
                exit status 0.
        """
        self.check_ready()
        return super().forward(*args, **kwargs)

    def check_ready(self) -> None:
        """Raise the errors of `forward` that do not depend on the input."""
        if self.unusable:
            raise ConfigurationError(self.unusable)
        if self.awaited_checkpoint is not None and self.training:
            raise CheckpointError(
                f"--restore-file is {self.awaited_checkpoint!r}, but no such file was loaded "
                f"(looked in {Path.cwd()}); give a path that exists, or remove the flag to start "
                "from scratch."
            )

    @commands.ends_commands_in_one_line
    def prepare_for_inference_(self, cfg: Any) -> None:
        """As fairseq's.

        Raises:
            ConfigurationError: --retain-dropout.
        """
        if getattr(cfg.generation, "retain_dropout", False):
            raise ConfigurationError(
                "--retain-dropout is not supported: these models have dropout in training only."
            )
        super().prepare_for_inference_(cfg)

    @commands.ends_commands_in_one_line
    def load_state_dict(
        self, state_dict: Any, strict: bool = True, model_cfg: Any = None, args: Any = None
    ) -> Any:
        """Load a state dict, also of fairseq's own model; a mismatch is explained in one line.

        Raises:
            CheckpointError: it belongs to another encoding, number of positions, dictionary or
                shape, or has other values for parameters that are tied here.
        """
        try:
            result = super().load_state_dict(state_dict, strict, model_cfg, args)
        except RuntimeError as error:
            lengths = {name: self.get_submodule(name).longest for name in self.stacks}
            raise CheckpointError(explain_mismatch(self, state_dict, lengths)) from error
        if reason := explain_ties(self, state_dict):
            raise CheckpointError(reason)
        self.awaited_checkpoint = None
        return result
