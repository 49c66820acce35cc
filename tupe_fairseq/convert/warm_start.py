"""Warm starts: a trained model under another position encoding."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from ..position import POSITION_ENCODINGS, build_position_encoding, model_options
from .models import ENCODER, POSITIONS, Converted

#: Options of formats that can be read as a warm start.
Encoding = Annotated[str, "NAME of the encoding, if not that of the source (warm start)"]
Seed = Annotated[int, "seed of the new parameters (default: 1)"]
#: Begin or are part of the names of an encoding's parameters.
TABLES = POSITIONS.removesuffix("weight")
TERMS = ".self_attn.layer_terms."


def warm_start(converted: Converted, position_encoding: str | None, seed: int) -> None:
    """Replace positions by those of another encoding, newly initialised, with default options.

    None, or the name of the model's own encoding, keeps them.
    """
    if position_encoding not in (None, converted.settings["position_encoding"]):
        new_encoding(converted, position_encoding, seed)
        converted.not_comparable = "a warm start has other positions than its source"


def new_encoding(
    converted: Converted,
    position_encoding: str,
    seed: int,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Replace positions by new ones, also of the same encoding.

    `options` are those of the encoding and of every encoding that differ from their defaults, or,
    with the same encoding, from those of the model.
    """
    settings = converted.settings
    state = converted.state
    own = dict(POSITION_ENCODINGS[position_encoding].defaults())
    if position_encoding == settings["position_encoding"]:
        own |= settings["position_options"]
    settings |= {name: value for name, value in options.items() if name not in own}
    settings |= {"position_encoding": position_encoding, "embedding_scale": None}
    settings["position_options"] = {name: options.get(name, own[name]) for name in own}
    positional = [name for name in state if name.startswith(TABLES) or TERMS in name]
    new = new_positions(converted, seed)
    converted.state = {n: value for n, value in state.items() if n not in positional} | new
    count = sum(value.numel() for value in new.values())
    # Each layer has the same.
    left_out = dict.fromkeys(re.sub(r"\.\d+\.", ".*.", name) for name in positional)
    gone = ", ".join(name.removeprefix(ENCODER) for name in left_out)
    added = ", ".join(name.removeprefix(ENCODER) for name in sorted(new))
    converted.notes += [
        f"left out: {gone or 'none'}",
        f"new, {count:,} parameters: {added or 'none'}",
    ]


def new_positions(converted: Converted, seed: int) -> dict[str, Tensor]:
    """Initial parameters and constants of the encoding that the settings name."""
    settings = converted.settings
    shared = (each for each in model_options() if each.name in settings)
    # Random numbers of the caller stay as they are.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        positions = build_position_encoding(
            settings["position_encoding"],
            settings["hidden_size"],
            settings["num_attention_heads"],
            settings["max_position_embeddings"],
            vocab_size=settings["vocab_size"],
            num_layers=settings["num_hidden_layers"],
            **{each.name: settings[each.name] for each in shared},
            **settings["position_options"],
        ).apply(_initialise)
        modules: dict[str, nn.Module] = {"embed_positions": positions}
        for index in range(settings["num_hidden_layers"]):
            terms = positions.at(index).build_layer_terms()
            if terms is not None:
                modules[f"layers.{index}.self_attn.layer_terms"] = terms.apply(_initialise)
    return {
        f"{ENCODER}{path}.{name}": value
        for path, module in modules.items()
        for name, value in module.state_dict().items()
    }


@torch.no_grad()
def _initialise(module: nn.Module) -> None:
    """BERT's initialisation, as fairseq and transformers apply it."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
