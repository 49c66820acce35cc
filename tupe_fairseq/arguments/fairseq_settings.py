"""Settings of fairseq that are not the model's."""

from typing import Any

from omegaconf import DictConfig, OmegaConf


def training_setting(args: Any, group: str, name: str) -> Any:
    """A setting that is not the model's, from a flat Namespace or from hydra's whole tree.

    Args:
        args: fairseq's object with the arguments of the model.
        group: of fairseq's settings, e.g. "task".
        name: of the setting.

    Returns:
        None where it is not set.
    """
    if isinstance(args, DictConfig):
        # omegaconf has no public way from a node to its root. Should this one vanish, take the
        # settings where fairseq hands them over: from the task's `cfg` and the trainer.
        return OmegaConf.select(args._get_root(), f"{group}.{name}")
    return getattr(args, name, None)
