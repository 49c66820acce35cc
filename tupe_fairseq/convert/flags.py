"""The flags of fairseq-train for a model whose sizes no `--arch` has."""

import shlex
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from ..fairseq.arguments.completion import with_architecture
from ..fairseq.arguments.roberta import ROBERTA
from ..position import POSITION_ENCODINGS
from .fairseq_models import LONGEST

#: What a training chooses anew.
DROPOUTS = ("dropout", "attention_dropout", "activation_dropout", "pooler_dropout")
#: fairseq's own, which cannot be switched off by a flag.
ON = ("encoder_normalize_before", "layernorm_embedding")


def training_flags(settings: Mapping[str, Any]) -> str:
    """The shortest flags by which fairseq-train builds a model with these arguments.

    Args:
        settings: of fairseq's model, as `settings.from_config` returns them.

    Returns:
        `--arch`, the encoding, and what differs from that architecture, as words of a shell; empty
        if no flags do, because every architecture has a norm that this model lacks.
    """
    found = [_flags(settings, arch) for arch in ROBERTA.architectures]
    shortest = min((flags for flags in found if flags), key=len, default=[])
    return shlex.join(shortest)


def _flags(settings: Mapping[str, Any], arch: str) -> list[str]:
    """The flags with an architecture; empty if a setting cannot be switched off."""
    chosen = settings["position_encoding"]
    longest = settings[LONGEST]
    encoding = POSITION_ENCODINGS[chosen]
    defaults = vars(with_architecture(ROBERTA, arch, Namespace())) | encoding.defaults()
    # What fairseq-train records itself.
    defaults |= encoding.recorded(encoding.defaults(), longest)
    flags = ["--arch", arch, "--position-encoding", chosen, "--max-positions", str(longest)]
    told = (*DROPOUTS, "position_encoding", LONGEST)
    for name, value in settings.items():
        if name in told or value in (None, defaults.get(name)):
            continue
        flag = name.replace("_", "-")
        if value is False and name in ON:
            return []
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            flags += [f"--{flag}", str(value)]
    return flags
