"""Encodings with options as the studies name them: `rope+rope_theta=500`."""

from typing import Any

from tupe_fairseq import UsageError
from tupe_fairseq.position import POSITION_ENCODINGS

TRUTH = {"": True, "true": True, "false": False}


def options_of(encoding: str) -> tuple[str, dict[str, Any]]:
    """Name and options of `NAME+OPTION=VALUE+...`.

    Raises:
        UsageError: unknown encoding or option, or a value of another type; truth values are
            `true` and `false`; `NAME+OPTION` is true.
    """
    name, *given = encoding.split("+")
    known = {option.name: option for option in POSITION_ENCODINGS[name].options()}
    options = {}
    for word in given:
        key, _, value = word.partition("=")
        try:
            kind = known[key].type
            options[key] = TRUTH[value] if kind is bool else kind(value)
        except (KeyError, ValueError):
            raise UsageError(
                f"the encoding {encoding!r} has {word!r}; the options of {name} are: "
                f"{', '.join(known) or 'none'}."
            ) from None
    return name, options


def flags_of(encoding: str) -> list[str]:
    """Flags for fairseq-train: --position-encoding rope --rope-theta 500."""
    name, options = options_of(encoding)
    flags = ["--position-encoding", name]
    for key, value in options.items():
        flag = key.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            flags += [f"--{flag}", str(value)]
    return flags
