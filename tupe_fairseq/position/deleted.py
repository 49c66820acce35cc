"""What tupe_fairseq 0.3.0 was the last version to have: older files and commands are told so."""

from collections.abc import Collection, Mapping
from typing import Any

from ..base.errors import ConfigurationError

#: Names of --position-encoding.
ENCODINGS = ("cable", "cope", "dape", "fox", "relative_bank", "urpe")
#: Names of --rope-scaling.
SCALINGS = ("llama3", "longrope")
#: Options, and the values with which older files load.
OPTIONS: dict[str, Any] = {
    "bank_extent": 1024,
    "bank_width": 16,
    "cope_positions": 64,
    "dape_base": "alibi",
    "dape_width": 32,
    "log_scaling_alpha": 0.1,
    "log_scaling_floor": None,
    "randomize_positions": 0,
    "rope_scaling_settings": None,
}


def without_deleted(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options without those deleted ones that have no effect."""
    return {
        name: value
        for name, value in options.items()
        if name not in OPTIONS or value not in (None, OPTIONS[name])
    }


def refuse_deleted(options: Mapping[str, Any], known: Collection[str]) -> None:
    """Check the options of an older file.

    Args:
        options: by name, of the file.
        known: names of options that there are.

    Raises:
        ConfigurationError: one is deleted, and has an effect.
    """
    for name, value in without_deleted(options).items():
        if name in OPTIONS and name not in known:
            raise deleted_option(f"--{name.replace('_', '-')}", value)


def deleted_option(flag: str, value: Any) -> ConfigurationError:
    """The error of a deleted option."""
    return ConfigurationError(
        f"{flag} is {value!r}, but tupe_fairseq 0.3.0 was the last version with this option: "
        "leave it out, or use that version."
    )
