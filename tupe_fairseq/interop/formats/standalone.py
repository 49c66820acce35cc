"""Directories of `TUPEMaskedLM`, for use without fairseq: config.json, model.safetensors."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ...errors import CheckpointError, UsageError
from ...standalone.encoder import ACTIVATIONS, TUPEConfig
from ...standalone.files import check_fit, write_config, write_tensors
from ...standalone.masked_lm import TUPEMaskedLM
from ..conversion import Conversion, Forward, register
from ..dictionaries import dictionary_text
from ..directory import ENCODER, VERSION, WORDS, Converted, building, head_names
from ..keys import Rule, Table, to_theirs, without_rule

KIND = "standalone"


def table() -> Table:
    """Rules for the names of `TUPEMaskedLM`."""
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
        CheckpointError: the standalone encoder has no counterpart of the model.
    """
    state, heads = converted.state, head_names(converted.state)
    try:
        # Recorded sizes may be wrong; tensors on this device take no memory.
        with torch.device("meta"):
            model = TUPEMaskedLM(
                config_of(converted.settings),
                len(state[WORDS]),
                tied=not converted.settings.get("untie_weights_roberta"),
            )
    except UsageError:
        raise
    # Values of unexpected types can raise any error.
    except Exception as error:
        raise CheckpointError(f"invalid settings of the model: {error}.") from error
    theirs = to_theirs(state, table())
    left_out = ("classification_heads.", VERSION)
    unknown = {n: v for n, v in without_rule(state, table()).items() if not n.startswith(left_out)}
    check_fit(theirs | unknown, model.state_dict(), "the model", KIND)
    if heads:
        converted.notes.append(f"left out, classification heads: {', '.join(heads)}")
    with building(out) as folder:
        write_config(folder / "config.json", model.settings())
        (folder / "dict.txt").write_text(dictionary_text(converted.entries), encoding="utf-8")
        write_tensors(folder / "model.safetensors", theirs)


def config_of(settings: Mapping[str, Any]) -> TUPEConfig:
    """The standalone encoder's configuration for a `tupe_roberta` model's settings.

    Raises:
        CheckpointError: a setting has no counterpart.
    """
    encoding, width = settings["position_encoding"], settings["encoder_embed_dim"]
    if encoding not in ("tupe_a", "tupe_r"):
        raise CheckpointError(
            f"the standalone encoder is TUPE, but the model's --position-encoding is {encoding!r}."
        )
    factor, rest = divmod(settings["encoder_ffn_embed_dim"], width)
    if rest:
        raise CheckpointError(
            "the standalone encoder's feed-forward width is a multiple of the model's width "
            f"{width}, but --encoder-ffn-embed-dim is {settings['encoder_ffn_embed_dim']}."
        )
    if settings["activation_fn"] not in ACTIVATIONS:
        raise CheckpointError(
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
        attention_window=settings.get("attention_window"),
        global_every=settings.get("global_every") or 0,
    )


def outputs(directory: Path, converted: Converted, head: str | None) -> Forward:
    """`TUPEMaskedLM` as loaded from the directory."""
    return TUPEMaskedLM.from_pretrained(directory)


SUMMARY = "TUPE for `TUPEMaskedLM.from_pretrained`, which needs torch and safetensors only"
register(Conversion("--to", KIND, SUMMARY, write, outputs, extra="hf"))
