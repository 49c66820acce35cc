"""Overrides for fairseq-hydra-train that follow from a pre-trained checkpoint and this machine.

    python -m examples.glue.pretrained DATA CHECKPOINT [OVERRIDE...]

DATA is a folder that preprocess_glue.sh made, OVERRIDE what the user gives. Prints one override
per line: the architecture, the position encoding and its options, the number of positions; for a
task of your own, its classes and updates; without a GPU, the use of the CPU.
"""

import json
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from examples.glue.tasks import TASKS
from examples.shared import script
from tupe_fairseq import UsageError
from tupe_fairseq.base.options import declared_options
from tupe_fairseq.fairseq.arguments.architectures import ROBERTA_ARCHITECTURES
from tupe_fairseq.fairseq.checkpoints.reading import read_checkpoint, recorded_settings
from tupe_fairseq.fairseq.hub.files import TOKENIZER
from tupe_fairseq.fairseq.hub.tokenizer_json import load_tokenizer
from tupe_fairseq.fairseq.hub.tokenizer_json import separates_once as has_one_separator
from tupe_fairseq.position import POSITION_ENCODINGS, model_options
from tupe_fairseq.transformer.layer_options import LayerOptions

#: Arguments on which the meaning of the weights depends, beside the options of the encoding.
ENCODER = (
    "encoder_layers",
    "encoder_embed_dim",
    "encoder_ffn_embed_dim",
    "encoder_attention_heads",
    "encoder_normalize_before",
    "activation_fn",
    "layernorm_embedding",
    "untie_weights_roberta",
    *(each.name for each in (*model_options(), *declared_options(LayerOptions))),
    "layer_norm_eps",
    "type_vocab_size",
)
#: Examples of a batch, epochs and share of the warm-up, as in config/cola.yaml.
BATCH = 32
EPOCHS = 10
WARMUP = 0.06
#: A value without characters that hydra interprets.
WORD = r"[\w.+-]+"
#: The override that gives a model more positions than its checkpoint.
EXTEND = "+model.extend_positions"


def overrides(data: Path, checkpoint: Path, given: Sequence[str] = ()) -> list[str]:
    """Overrides for fine-tuning a checkpoint on a task.

    Args:
        data: a folder that preprocess_glue.sh made.
        checkpoint: of the pre-trained model.
        given: overrides of the user. With +model.extend_positions among them, the model gets as
            many positions as the longest example needs.

    Raises:
        UsageError: the checkpoint or the data cannot be used, or the examples are too long.
    """
    if not checkpoint.is_file():
        raise UsageError(f"CHECKPOINT is {checkpoint}, but there is no such file.")
    model = model_arguments(checkpoint)
    positions = model.get("max_positions") or model.get("tokens_per_sample")
    if not isinstance(positions, int):
        raise UsageError(f"{checkpoint} does not say how many positions its model has.")
    if any(word.startswith(f"{EXTEND}=") for word in given):
        # A checkpoint that was extended before records how many positions have been trained.
        model = {**model, "extend_positions": None}
        model["trained_positions"] = model.get("trained_positions") or positions
        positions = max(positions, task_settings(data)["max_positions"])
    check_length(data, positions, checkpoint)
    arch = model.get("arch", model.get("_name"))
    found = [f"model._name={arch if arch in ROBERTA_ARCHITECTURES else 'tupe_roberta'}"]
    for key, value in encoder_settings(model).items():
        # A line break would begin another override; hydra also interprets other characters.
        text = written(value)
        if not re.fullmatch(WORD, text):
            raise UsageError(f"{checkpoint} has an invalid {key}: {value!r}.")
        # The YAML files set the encoding alone; hydra 1.0 does not support `++`, for both cases.
        added = "" if key == "position_encoding" else "+"
        found.append(f"{added}model.{key}={text}")
    found.append(f"task.max_positions={positions}")
    if separates_once(data, model) and not any("task.separator_token=" in word for word in given):
        found.append("task.separator_token=null")
    if task_settings(data)["task"] not in TASKS:
        found += own_task(data)
    if not torch.cuda.is_available():
        found += ["common.cpu=true", "common.fp16=false"]
    return found


def own_task(data: Path) -> list[str]:
    """What config/own.yaml leaves open: the number of classes and the length of the training."""
    labels = (data / "label" / "dict.txt").read_text(encoding="utf-8").splitlines()
    updates = EPOCHS * math.ceil(task_settings(data)["examples"]["train"] / BATCH)
    return [
        f"task.num_classes={len(labels)}",
        f"optimization.max_update={updates}",
        f"lr_scheduler.warmup_updates={int(WARMUP * updates)}",
    ]


def separates_once(data: Path, model: dict[str, Any]) -> bool:
    """Whether one </s> stands between two sentences, as in BERT, where RoBERTa has two."""
    if (model.get("type_vocab_size") or 0) > 1:
        return True
    path = data / TOKENIZER
    return path.is_file() and has_one_separator(load_tokenizer(path))


def encoder_settings(model: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the encoder; stock RoBERTa, which has no encoding, is `learned`."""
    encoding = model.get("position_encoding", "learned")
    options = POSITION_ENCODINGS[encoding].options() if encoding in POSITION_ENCODINGS else ()
    keys = (*ENCODER, *(option.name for option in options))
    known = {key: model[key] for key in keys if model.get(key) is not None}
    return {"position_encoding": encoding, **known}


def model_arguments(checkpoint: Path) -> dict[str, Any]:
    """The settings of the model that fairseq-train or fairseq-hydra-train recorded."""
    return recorded_settings(read_checkpoint(checkpoint), "model", checkpoint)


def task_settings(folder: Path) -> dict[str, Any]:
    """What preprocess_glue.sh wrote about its data, also beside a model.

    Raises:
        UsageError: the folder has no task.json.
    """
    path = folder / "task.json"
    if not path.is_file():
        raise UsageError(f"{path} is missing; preprocess_glue.sh and finetune.sh write one.")
    return json.loads(path.read_text())


def check_length(data: Path, positions: int, model: Path) -> None:
    """Raise a UsageError if the examples of a task are longer than a model's positions."""
    longest = task_settings(data)["max_positions"]
    if longest > positions:
        raise UsageError(
            f"{data} holds examples of up to {longest} tokens, but {model} has {positions} "
            f"positions: run preprocess_glue.sh with --max-positions {positions}, or "
            f"fine-tune with {EXTEND}=toeplitz (TUPE) or {EXTEND}=hierarchical."
        )


def written(value: Any) -> str:
    """A value in hydra's syntax."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def main() -> None:
    """See the module's docstring."""
    data, checkpoint, *given = sys.argv[1:]
    print("\n".join(overrides(Path(data), Path(checkpoint), given)))


if __name__ == "__main__":
    script.run(main)
