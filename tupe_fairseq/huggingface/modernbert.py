"""What the configuration of a ModernBERT says of layers and positions (Warner et al. 2024)."""

from typing import Any

from ..base.errors import ConfigurationError
from ..transformer.layer_options import LayerOptions

#: The gate of each activation of feed-forward blocks.
GATE_OF = {"gelu": "geglu", "silu": "swiglu"}
#: Dropouts that layers here do not have.
NO_DROPOUT = ("attention_dropout", "embedding_dropout")
GLOBAL = "full_attention"
LOCAL = "sliding_attention"


def layer_options(config: Any) -> LayerOptions:
    """The options of the layers.

    Raises:
        ConfigurationError: a setting is not supported.
    """
    for name in NO_DROPOUT:
        _require(name, getattr(config, name), (0,))
    _require("hidden_activation", config.hidden_activation, GATE_OF)
    return LayerOptions(
        gated_ffn=GATE_OF[config.hidden_activation],
        norm_bias=config.norm_bias,
        attention_bias=config.attention_bias,
        ffn_bias=config.mlp_bias,
        first_attention_norm=False,
    )


def windows(config: Any) -> dict[str, Any]:
    """`attention_window` and `global_every`.

    Raises:
        ConfigurationError: global layers are not layers 0, N, 2N, ..., or a token of another
            layer reads itself alone.
    """
    count = config.num_hidden_layers
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        # Of transformers 4.
        kinds = _kinds(count, config.global_attn_every_n_layers)
    if LOCAL not in kinds:
        return {"attention_window": None, "global_every": 0}
    every = kinds.index(GLOBAL, 1) if GLOBAL in kinds[1:] else count
    if kinds != _kinds(count, every):
        raise ConfigurationError(
            "unsupported layer_types; layers 0, N, 2N, ... must be full_attention, and all others "
            "sliding_attention."
        )
    if config.local_attention < 2:
        raise ConfigurationError(
            f"unsupported local_attention {config.local_attention}; it must be at least 2."
        )
    return {"attention_window": config.local_attention // 2, "global_every": every}


def _kinds(count: int, every: int) -> list[str]:
    return [LOCAL if index % every else GLOBAL for index in range(count)]


def rotation(config: Any) -> dict[str, Any]:
    """The options of the encoding `rope`.

    Raises:
        ConfigurationError: frequencies are scaled.
    """
    parameters = getattr(config, "rope_parameters", None)
    if parameters is None:
        # Of transformers 4.
        theta = config.global_rope_theta
        local = config.local_rope_theta
        local = theta if local is None else local
    else:
        for kind in (GLOBAL, LOCAL):
            _require(f"rope_type of {kind}", parameters[kind]["rope_type"], ("default",))
        theta = parameters[GLOBAL]["rope_theta"]
        local = parameters[LOCAL]["rope_theta"]
    has_window = windows(config)["attention_window"] is not None
    return {
        "rope_halves": True,
        "rope_theta": theta,
        "rope_theta_local": local if has_window else None,
    }


def _require(name: str, value: Any, known: Any) -> None:
    if value not in known:
        raise ConfigurationError(
            f"unsupported {name} {value!r}; it must be {' or '.join(map(repr, known))}."
        )
