"""Settings of a training that are not the model's, as far as models read them."""

from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig, OmegaConf

#: This value of --restore-file means the last checkpoint in --save-dir, if there is one.
DEFAULT_RESTORE_FILE = "checkpoint_last.pt"
#: Groups of fairseq's settings; the others are those of `task`.
GROUPS = {
    **dict.fromkeys(("restore_file", "save_dir", "finetune_from_model"), "checkpoint"),
    "tpu": "common",
}


class TrainingSettings(NamedTuple):
    """Settings of fairseq's task, checkpoints and devices; None where they are not set."""

    data: str | None = None
    tokens_per_sample: int | None = None
    sample_break_mode: str | None = None
    add_bos_token: bool | None = None
    max_target_positions: int | None = None
    restore_file: str | None = None
    save_dir: str | None = None
    finetune_from_model: str | None = None
    tpu: bool | None = None

    @classmethod
    def read(cls, args: Any) -> "TrainingSettings":
        """Read them from fairseq's object with the arguments of the model.

        Args:
            args: a flat Namespace, or a node of hydra's whole tree.
        """
        if not isinstance(args, DictConfig):
            return cls(*(getattr(args, name, None) for name in cls._fields))
        # omegaconf has no public way from a node to its root. Should this one vanish, take the
        # settings where fairseq hands them over: from the task's `cfg` and the trainer.
        root = args._get_root()
        groups = (GROUPS.get(name, "task") for name in cls._fields)
        keys = (f"{group}.{name}" for group, name in zip(groups, cls._fields, strict=True))
        return cls(*(OmegaConf.select(root, key) for key in keys))

    @property
    def restored_file(self) -> Path:
        """The path that --restore-file refers to; the file may be missing."""
        name = self.restore_file or DEFAULT_RESTORE_FILE
        return Path(self.save_dir or "", name) if name == DEFAULT_RESTORE_FILE else Path(name)
