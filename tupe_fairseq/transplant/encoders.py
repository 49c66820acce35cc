"""The source, and the encoder that gets another position encoding."""

import copy
import json
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ..convert.carried import SENTENCES
from ..convert.classes import to_transformers
from ..convert.models import TOKEN_TYPES, Converted
from ..convert.warm_start import new_encoding
from ..kernels.dropout import Dropout
from .texts import Batch


def transplanted(
    source: Converted,
    encoding: str,
    options: dict[str, Any],
    positions: int | None,
    seed: int,
) -> Converted:
    """The source with new positions.

    Args:
        source: stays as it is.
        encoding: name of the new one.
        options: its own, and those of every encoding.
        positions: the longest text in tokens; None: those of the source.
        seed: of the new parameters.
    """
    settings = copy.deepcopy(source.settings)
    made = replace(source, settings=settings, state=dict(source.state), notes=[])
    if settings["position_encoding"] == "learned" and TOKEN_TYPES not in made.state:
        # The place of the mean position (start.py); RoBERTa has no token types.
        made.state[TOKEN_TYPES] = torch.zeros(1, settings["hidden_size"])
        settings["type_vocab_size"] = 1
    if positions is not None:
        settings["max_position_embeddings"] = positions
        sentences = next(filter(source.files.__contains__, SENTENCES), "")
        made.files = _with(source.files, sentences, max_seq_length=positions)
        made.tokenizer = _with(
            source.tokenizer, "tokenizer_config.json", model_max_length=positions
        )
    new_encoding(made, encoding, seed, options)
    return made


def _with(files: dict[str, bytes], name: str, **changes: int) -> dict[str, bytes]:
    """The files, with changes to this one of JSON, if it is there."""
    if name not in files:
        return files
    return files | {
        name: (json.dumps(json.loads(files[name]) | changes, indent=2) + "\n").encode()
    }


class Encoder(nn.Module):
    """A model that returns the features of tokens, and logits where it has a trained head.

    Dropout is off, so that the same text has the same features.
    """

    def __init__(self, converted: Converted):
        super().__init__()
        self.model = to_transformers(converted, "tupe", None)
        self.has_head = converted.has_lm_head
        self.has_types = converted.has_types
        for module in self.modules():
            if isinstance(module, (Dropout, nn.Dropout)):
                module.p = 0.0

    @property
    def base(self) -> Any:
        """The `TupeModel`."""
        return self.model.tupe if self.has_head else self.model

    def forward(self, batch: Batch, states: bool = False) -> tuple[Tensor, ...]:
        """Features N×C of the N tokens, the last ones; with `states`, those of each layer."""
        output = self.base(**batch.inputs(self.has_types), output_hidden_states=states)
        every = output.hidden_states[1:] if states else (output.last_hidden_state,)
        shown = batch.mask.bool()
        return tuple(each[shown] for each in every)

    def logits(self, features: Tensor, batch: Batch, cells: Tensor) -> Tensor:
        """Of the language modeling head at M of the N tokens: M×V."""
        columns = [each[cells] for each in batch.mask.nonzero(as_tuple=True)]
        found: Tensor = self.model.logits(features[cells], batch.mask, tuple(columns))
        return found

    def positions(self) -> list[nn.Parameter]:
        """The parameters of the position encoding."""
        stack = self.base.encoder
        terms = (layer.self_attn.layer_terms for layer in stack.layers)
        modules = [stack.embed_positions, *(each for each in terms if each is not None)]
        return [parameter for module in modules for parameter in module.parameters()]

    def state(self, converted: Converted) -> dict[str, Tensor]:
        """The parameters by the names of `Converted`, with those of heads that do not train."""
        prefix = "" if self.has_head else "tupe."
        found = {f"{prefix}{name}": value for name, value in self.model.state_dict().items()}
        return converted.state | {
            name: value for name, value in found.items() if name in converted.state
        }


def mean_features(features: Tensor, batch: Batch) -> Tensor:
    """The mean of the features of each text: N×C -> B×C."""
    rows = batch.mask.sum(1)
    text = torch.repeat_interleave(rows)
    total = features.new_zeros(len(rows), features.size(1)).index_add(0, text, features)
    return total / rows[:, None]
