"""What is written, as its readers load it: transformers' model, tokenizer and names of classes."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .check import inputs
from .classes import class_of, library
from .conversion import Encode, Opened
from .models import Converted
from .tokenizer_files import has_tokenizer, settings_of


def open_directory(directory: Path, converted: Converted, head: str | None) -> Opened:
    """The model as transformers loads it.

    Raises:
        UsageError: `transformers` is not installed.
    """
    # A configuration for multiple choice does not say that there is one score.
    how: dict[str, Any] = {}
    if len(converted.labels) == 1:
        how["id2label"] = {0: converted.labels[0]}
    # That of the released DeBERTas does not name the form of their head.
    if converted.settings.get("legacy") is False:
        how["legacy"] = False
    config = library().AutoConfig.from_pretrained(str(directory), **how)
    opened = {"config": config, "dtype": torch.float32}
    model = class_of(converted, head).from_pretrained(str(directory), **opened).eval()
    bare = converted.writes_features(head)

    def forward(tokens: Tensor) -> Tensor:
        arguments = inputs(tokens, converted)
        if not converted.has_types:
            del arguments["token_type_ids"]
        out = model(**arguments)
        if bare:
            return out.last_hidden_state
        if "start_logits" in out:
            return torch.stack((out.start_logits, out.end_logits), -1)
        return out.logits

    return Opened(forward, *texts_and_labels(directory, converted), model)


def texts_and_labels(
    directory: Path, converted: Converted
) -> tuple[Encode | None, list[str], dict[str, Any]]:
    """The tokenizer of a directory, if it has one, names of its classes, the tokenizer's parts."""
    path = directory / "config.json"
    encode = None
    parts: dict[str, Any] = {}
    names = json.loads(path.read_text(encoding="utf-8")).get("id2label", {})
    if has_tokenizer(directory):
        auto = library().AutoTokenizer
        tokenizer = auto.from_pretrained(str(directory), trust_remote_code=False)
        encode = lambda texts: tokenizer(*texts)["input_ids"]  # noqa: E731
        parts = settings_of(tokenizer)
    labels = [str(names[number]) for number in sorted(names, key=int)]
    return encode, labels[:1] if len(converted.labels) == 1 else labels, parts
