"""TUPE for use without fairseq: config.json, model.safetensors and dict.txt (`TUPEMaskedLM`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ..errors import UsageError
from ..standalone.encoder import ACTIVATIONS, TUPEConfig
from ..standalone.masked_lm import TUPEMaskedLM
from .dictionaries import dictionary_text
from .directory import ENCODER, WORDS, Converted, building
from .fairseq_roberta import VERSION
from .heads import head_names
from .keys import Rule, Table, check_fit, to_theirs, without_rule
from .tensors import write_tensors

KIND = "standalone"


def table() -> Table:
    """Names there and here."""
    parts = ("embed_positions.*", "embed_positions.*.*", "layernorm_embedding.*", "layer_norm.*")
    layers = ("layers.*.*.*", "layers.*.*.*.*")
    return (
        Rule("embed_tokens.weight", WORDS),
        *(Rule(f"encoder.{name}", f"{ENCODER}{name}") for name in (*parts, *layers)),
        Rule("lm_head.*", "encoder.lm_head.*"),
        Rule("lm_head.*.*", "encoder.lm_head.*.*"),
    )


def write(converted: Converted, out: Path) -> None:
    """Write a directory that `TUPEMaskedLM.from_pretrained` loads, without classification heads.

    Args:
        converted: the model.
        out: the directory; must not exist.

    Raises:
        UsageError: the model is no TUPE, or its parameters are not those of the standalone
            encoder.
    """
    state, heads = converted.state, head_names(converted.state)
    try:
        # What is recorded may be any number; on this device tensors take no memory.
        with torch.device("meta"):
            model = TUPEMaskedLM(
                config_of(converted.settings),
                len(state[WORDS]),
                tied=not converted.settings.get("untie_weights_roberta"),
            )
    except UsageError:
        raise
    # What a class makes of values of other types can be any error.
    except Exception as error:
        raise UsageError(f"the settings of the model cannot be: {error}.") from error
    theirs = to_theirs(state, table())
    left_out = ("classification_heads.", VERSION)
    unknown = {n: v for n, v in without_rule(state, table()).items() if not n.startswith(left_out)}
    check_fit(theirs | unknown, model.state_dict(), "the model", KIND)
    if heads:
        converted.notes.append(f"left out, classification heads: {', '.join(heads)}")
    with building(out) as folder:
        text = json.dumps(model.settings(), indent=2)
        (folder / "config.json").write_text(text + "\n")
        (folder / "dict.txt").write_text(dictionary_text(converted.entries), encoding="utf-8")
        write_tensors(folder / "model.safetensors", theirs)


def config_of(settings: Mapping[str, Any]) -> TUPEConfig:
    """The standalone encoder's configuration for a `tupe_roberta` model's settings.

    Raises:
        UsageError: there is none.
    """
    encoding, width = settings["position_encoding"], settings["encoder_embed_dim"]
    if encoding not in ("tupe_a", "tupe_r"):
        raise UsageError(
            f"the standalone encoder is TUPE, but the model's --position-encoding is {encoding!r}."
        )
    factor, rest = divmod(settings["encoder_ffn_embed_dim"], width)
    if rest:
        raise UsageError(
            "the standalone encoder's feed-forward width is a multiple of the model's width "
            f"{width}, but --encoder-ffn-embed-dim is {settings['encoder_ffn_embed_dim']}."
        )
    if settings["activation_fn"] not in ACTIVATIONS:
        raise UsageError(
            f"the standalone encoder's activations are {', '.join(ACTIVATIONS)}, but "
            f"--activation-fn is {settings['activation_fn']!r}."
        )
    return TUPEConfig(
        num_layers=settings["encoder_layers"],
        num_heads=settings["encoder_attention_heads"],
        d_model=width,
        max_len=settings["max_positions"],
        dropout=settings["dropout"],
        expansion_factor=factor,
        relative_bias=encoding == "tupe_r",
        num_buckets=settings.get("num_buckets") or 32,
        max_distance=settings.get("max_distance") or 128,
        untie_cls=not settings.get("tie_cls"),
        layernorm_embedding=settings["layernorm_embedding"],
        normalize_before=settings["encoder_normalize_before"],
        activation=settings["activation_fn"],
    )
