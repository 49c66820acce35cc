"""ModernBERT: pre-LN layers with gates and few biases, and the encoding `rope`.

The projections of queries, keys and values are joined there. Biases of heads that it does not have
are zero here. All heads have a norm before their last layer.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ...base.errors import CheckpointError
from ..keys import JOINED, Rule
from ..models import EMBED_TOKENS, ENCODER, LM_HEAD, ONE_HEAD
from .base import Architecture

LAYER = "model.layers.*."
OURS = f"{ENCODER}layers.*."


def settings_of(config: Any) -> dict[str, Any]:
    """Settings of `TupeConfig` from those of ModernBERT.

    Raises:
        ConfigurationError: a setting is not supported.
    """
    from ...huggingface.modernbert import layer_options, rotation, windows

    return {
        **asdict(layer_options(config)),
        **windows(config),
        "position_options": rotation(config),
        "hidden_act": config.classifier_activation,
        "classifier_act": config.classifier_activation,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "activation_dropout": config.mlp_dropout,
        "pooler_dropout": 0.0,
        "layer_norm_eps": config.norm_eps,
    }


def settings_there(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of ModernBERT from those of `TupeConfig`.

    Raises:
        CheckpointError: an option has no counterpart.
    """
    from ...huggingface.modernbert import GATE_OF

    options = config["position_options"]
    window = config["attention_window"]
    act = {gate: name for name, gate in GATE_OF.items()}.get(config["gated_ffn"])
    if act is None or (window and not config["global_every"]):
        raise CheckpointError(
            "transformers' modernbert has gates in feed-forward blocks, and global layers beside "
            "those with a window: use --classes tupe."
        )
    theta = options["rope_theta"]
    local = options["rope_theta_local"]
    dropout = config["classifier_dropout"]
    return {
        "hidden_activation": act,
        "mlp_bias": config["ffn_bias"],
        "norm_eps": config["layer_norm_eps"],
        "mlp_dropout": config["activation_dropout"],
        "classifier_activation": config["hidden_act"],
        "classifier_dropout": config["hidden_dropout_prob"] if dropout is None else dropout,
        "local_attention": 2 * (window or 64),
        "global_attn_every_n_layers": config["global_every"] if window else 1,
        "global_rope_theta": theta,
        "local_rope_theta": theta if local is None else local,
        "cls_token_id": config["bos_token_id"],
        "sep_token_id": config["eos_token_id"],
    }


#: What ModernBERT's rotation does not have.
ROTATION = {
    "rope_halves": True,
    "rope_values": False,
    "rope_fraction": 1.0,
    "rope_scaling": None,
    "rope_skip_every": 0,
}
MODERNBERT = Architecture(
    model_type="modernbert",
    prefix="model",
    rules=(
        Rule("model.embeddings.tok_embeddings.weight", EMBED_TOKENS),
        Rule("model.embeddings.norm.*", f"{ENCODER}layernorm_embedding.*"),
        Rule(f"{LAYER}attn_norm.*", f"{OURS}self_attn_layer_norm.*"),
        Rule(f"{LAYER}attn.Wqkv.*", f"{OURS}self_attn{JOINED}*"),
        Rule(f"{LAYER}attn.Wo.*", f"{OURS}self_attn.out_proj.*"),
        Rule(f"{LAYER}mlp_norm.*", f"{OURS}final_layer_norm.*"),
        Rule(f"{LAYER}mlp.Wi.*", f"{OURS}fc1.*"),
        Rule(f"{LAYER}mlp.Wo.*", f"{OURS}fc2.*"),
        Rule("model.final_norm.*", f"{ENCODER}layer_norm.*"),
        Rule("decoder.*", f"{LM_HEAD}decoder.*"),
        Rule("classifier.*", f"{ONE_HEAD}out_proj.*"),
        # Both heads have these names; the reader knows which one there is.
        Rule("head.dense.*", f"{LM_HEAD}dense.*"),
        Rule("head.norm.*", f"{LM_HEAD}layer_norm.*"),
        Rule("head.*.*", f"{ONE_HEAD}*.*"),
    ),
    settings={
        "position_encoding": "rope",
        "layernorm_embedding": True,
        "normalize_before": True,
        "norm": "layer",
        "first_attention_norm": False,
        "classifier_norm": True,
        "type_vocab_size": 0,
        "quant_noise_pq": 0.0,
        "embedding_scale": 1.0,
        **ROTATION,
    },
    joined=True,
    biases={
        f"{LM_HEAD}dense.bias": "classifier_bias",
        f"{LM_HEAD}layer_norm.bias": "norm_bias",
        f"{LM_HEAD}decoder.bias": "decoder_bias",
        f"{ONE_HEAD}dense.bias": "classifier_bias",
        f"{ONE_HEAD}norm.bias": "norm_bias",
    },
    kept=("classifier_bias", "decoder_bias", "sparse_prediction", "sparse_pred_ignore_index"),
    derived=settings_of,
    derived_there=settings_there,
)
