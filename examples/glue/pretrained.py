"""What a pre-trained checkpoint and this machine ask of fairseq-hydra-train, as overrides.

    python examples/glue/pretrained.py DATA CHECKPOINT

DATA is a folder that preprocess_glue.sh made. Prints one override a line: the architecture, the
position encoding and its options, the number of positions; without a GPU, that there is none.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import torch

from tupe_fairseq import UsageError
from tupe_fairseq.arguments.architectures import ROBERTA_ARCHITECTURES
from tupe_fairseq.checkpoints.reading import read_checkpoint
from tupe_fairseq.checkpoints.settings import recorded_settings
from tupe_fairseq.position import POSITION_ENCODINGS

#: Arguments of stock RoBERTa that decide what the weights of its encoder mean.
ENCODER = (
    "encoder_layers",
    "encoder_embed_dim",
    "encoder_ffn_embed_dim",
    "encoder_attention_heads",
    "encoder_normalize_before",
    "activation_fn",
    "layernorm_embedding",
    "untie_weights_roberta",
)


def overrides(data: Path, checkpoint: Path) -> list[str]:
    """Overrides for fine-tuning a checkpoint on a task.

    Raises:
        UsageError: one of both is not there or is something else, or the data is too long.
    """
    if not checkpoint.is_file():
        raise UsageError(f"CHECKPOINT is {checkpoint}, but no such file is there.")
    model = model_arguments(checkpoint)
    positions = model.get("max_positions") or model.get("tokens_per_sample")
    if not isinstance(positions, int):
        raise UsageError(f"{checkpoint} does not say how many positions its model has.")
    cut_to = task_settings(data)["max_positions"]
    if cut_to > positions:
        raise UsageError(
            f"{data} holds examples of up to {cut_to} tokens, but {checkpoint} has {positions} "
            f"positions: run preprocess_glue.sh with --max-positions {positions}."
        )
    arch = model.get("arch", model.get("_name"))
    found = [f"model._name={arch if arch in ROBERTA_ARCHITECTURES else 'tupe_roberta'}"]
    for key, value in encoder_settings(model).items():
        # A line more would be another override, and hydra reads more than words and numbers.
        if not re.fullmatch(r"[\w.+-]+", written(value)):
            raise UsageError(f"{checkpoint}: its {key} is {value!r}, which cannot be.")
        # The YAML files have the encoding; `++`, for both, is not known to hydra 1.0.
        added = "" if key == "position_encoding" else "+"
        found.append(f"{added}model.{key}={written(value)}")
    found.append(f"task.max_positions={positions}")
    if not torch.cuda.is_available():
        found += ["common.cpu=true", "common.fp16=false"]
    return found


def encoder_settings(model: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the encoder; stock RoBERTa, which has no flag for it, is `learned`."""
    encoding = model.get("position_encoding", "learned")
    options = POSITION_ENCODINGS[encoding].options() if encoding in POSITION_ENCODINGS else ()
    keys = (*ENCODER, *(option.name for option in options))
    known = {key: model[key] for key in keys if model.get(key) is not None}
    return {"position_encoding": encoding, **known}


def model_arguments(checkpoint: Path) -> dict[str, Any]:
    """The settings of the model, as fairseq-train or fairseq-hydra-train recorded them."""
    return recorded_settings(read_checkpoint(checkpoint), "model", checkpoint)


def task_settings(data: Path) -> dict[str, Any]:
    """What preprocess_glue.sh wrote about its data.

    Raises:
        UsageError: the folder is not one of its.
    """
    path = data / "task.json"
    if not path.is_file():
        raise UsageError(f"DATA is {data}, but preprocess_glue.sh has made no task.json there.")
    return json.loads(path.read_text())


def written(value: Any) -> str:
    """A value as hydra reads it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    try:
        print("\n".join(overrides(*map(Path, sys.argv[1:]))))
    except (UsageError, OSError) as error:
        sys.exit(f"error: {error}")
