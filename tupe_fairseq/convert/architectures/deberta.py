"""DeBERTa-v2 and v3: the encoding `deberta` as released, under other names.

Convolution (v2-xlarge), embeddings of another width and models without relative attention are not
supported.
"""

from collections.abc import Collection, Mapping
from typing import Any

from ...base.errors import CheckpointError
from ...position.deberta import released_options
from ..keys import Rule
from ..models import EMBED_TOKENS, ENCODER, LM_HEAD, ONE_HEAD, POSITIONS
from .base import Architecture

LAYER = "deberta.encoder.layer.*."
OURS = f"{ENCODER}layers.*."
CONTENT = ("query", "key", "value")
#: The older and the newer head for masked tokens; a model has one of them.
TRANSFORMS = ("cls.predictions.transform.", "lm_predictions.lm_head.")


def settings_of(config: Any) -> dict[str, Any]:
    """Settings of `TupeConfig` from those of DeBERTa-v2.

    Raises:
        CheckpointError: the embeddings have another width.
    """
    width = getattr(config, "embedding_size", config.hidden_size)
    if width != config.hidden_size:
        raise CheckpointError(
            f"unsupported embedding_size {width!r}; it must be the hidden_size "
            f"{config.hidden_size!r}."
        )
    dropout = getattr(config, "cls_dropout", None)
    return {
        "classifier_act": config.pooler_hidden_act,
        "classifier_dropout": config.hidden_dropout_prob if dropout is None else dropout,
        "position_options": released_options(config),
    }


def settings_there(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of DeBERTa-v2 from those of `TupeConfig`.

    Raises:
        CheckpointError: an option of the encoding has no counterpart.
    """
    options = config["position_options"]
    dropout = options["deberta_dropout"]
    if dropout != config["hidden_dropout_prob"]:
        raise CheckpointError(
            f"deberta_dropout is {dropout!r}, but in transformers' DeBERTa-v2 it is the "
            f"hidden_dropout_prob {config['hidden_dropout_prob']!r}: use --classes tupe."
        )
    terms = options["deberta_terms"]
    return {
        "relative_attention": True,
        "max_relative_positions": options["relative_clip"],
        "position_buckets": options["deberta_buckets"] or -1,
        "pos_att_type": [] if terms == "none" else terms.split("+"),
        "share_att_key": options["deberta_share"],
        "norm_rel_ebd": "layer_norm" if options["deberta_norm"] else "none",
        "position_biased_input": options["deberta_absolute"],
        "pooler_hidden_act": config["classifier_act"],
        "cls_dropout": config["classifier_dropout"],
    }


def form_of_head(names: Collection[str]) -> dict[str, Any]:
    """Which head there is, as config.json of the released models does not say."""
    for head, legacy in zip(TRANSFORMS, (True, False), strict=True):
        if any(name.startswith(head) for name in names):
            return {"legacy": legacy}
    return {}


DEBERTA = Architecture(
    model_type="deberta-v2",
    prefix="deberta",
    rules=(
        Rule("deberta.embeddings.word_embeddings.weight", EMBED_TOKENS),
        Rule(
            "deberta.embeddings.position_embeddings.weight",
            f"{ENCODER}embed_positions.absolute_input",
        ),
        Rule("deberta.embeddings.token_type_embeddings.*", f"{ENCODER}embed_token_types.*"),
        Rule("deberta.embeddings.LayerNorm.*", f"{ENCODER}layernorm_embedding.*"),
        Rule("deberta.encoder.rel_embeddings.weight", POSITIONS),
        Rule("deberta.encoder.LayerNorm.*", f"{ENCODER}embed_positions.norm.*"),
        *(
            Rule(f"{LAYER}attention.self.{name}_proj.*", f"{OURS}self_attn.{name[0]}_proj.*")
            for name in CONTENT
        ),
        *(
            Rule(
                f"{LAYER}attention.self.pos_{name}_proj.*",
                f"{OURS}self_attn.layer_terms.pos_{name[0]}_proj.*",
            )
            for name in CONTENT[:2]
        ),
        Rule(f"{LAYER}attention.output.dense.*", f"{OURS}self_attn.out_proj.*"),
        Rule(f"{LAYER}attention.output.LayerNorm.*", f"{OURS}self_attn_layer_norm.*"),
        Rule(f"{LAYER}intermediate.dense.*", f"{OURS}fc1.*"),
        Rule(f"{LAYER}output.dense.*", f"{OURS}fc2.*"),
        Rule(f"{LAYER}output.LayerNorm.*", f"{OURS}final_layer_norm.*"),
        *(Rule(f"{head}dense.*", f"{LM_HEAD}dense.*") for head in TRANSFORMS),
        *(Rule(f"{head}LayerNorm.*", f"{LM_HEAD}layer_norm.*") for head in TRANSFORMS),
        Rule("cls.predictions.decoder.*", f"{LM_HEAD}decoder.*"),
        Rule("cls.predictions.bias", f"{LM_HEAD}decoder.bias"),
        Rule("lm_predictions.lm_head.bias", f"{LM_HEAD}decoder.bias"),
        # The reader puts the prefix before all poolers.
        Rule("deberta.pooler.dense.*", f"{ONE_HEAD}dense.*"),
        Rule("pooler.dense.*", f"{ONE_HEAD}dense.*"),
        Rule("classifier.*", f"{ONE_HEAD}out_proj.*"),
        Rule("qa_outputs.*", f"{ONE_HEAD}out_proj.*"),
    ),
    settings={
        "position_encoding": "deberta",
        "layernorm_embedding": True,
        "normalize_before": False,
        "attention_window": None,
        "quant_noise_pq": 0.0,
        "activation_dropout": 0.0,
        "deberta_released": True,
        "deberta_emd": False,
    },
    required={"relative_attention": True, "conv_kernel_size": 0},
    kept=("legacy",),
    shown=form_of_head,
    derived=settings_of,
    derived_there=settings_there,
)
