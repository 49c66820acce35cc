"""DeBERTa-v2 of transformers with random parameters, and the same model as one of ours."""

import re

import torch
import transformers
from torch import nn

from tests.attention.cases import enlarged
from tupe_fairseq import huggingface

SIZES = {
    "vocab_size": 60,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 32,
    "max_position_embeddings": 24,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "pad_token_id": 0,
    "relative_attention": True,
    "num_labels": 3,
}
#: Options as the released models have them.
RELEASED = {
    "position_buckets": 16,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "max_relative_positions": -1,
}
#: In transformers 4, `legacy=False` ties another layer of the head to the embeddings.
NEEDS_LEGACY = transformers.__version__ < "5"
#: Names of parameters there and here.
NAMES = (
    (r"cls\.predictions\.transform\.|lm_predictions\.lm_head\.", "lm_head."),
    (r"cls\.predictions\.(decoder\.)?", "lm_head.decoder."),
    (r"lm_head\.bias", "lm_head.decoder.bias"),
    (r"lm_head\.LayerNorm", "lm_head.layer_norm"),
    (r"deberta\.embeddings\.word_embeddings", "tupe.embed_tokens"),
    (r"deberta\.embeddings\.LayerNorm", "tupe.encoder.layernorm_embedding"),
    (
        r"deberta\.embeddings\.position_embeddings\.weight",
        "tupe.encoder.embed_positions.absolute_input",
    ),
    (r"deberta\.embeddings\.token_type_embeddings", "tupe.encoder.embed_token_types"),
    (r"deberta\.encoder\.rel_embeddings", "tupe.encoder.embed_positions"),
    (r"deberta\.encoder\.LayerNorm", "tupe.encoder.embed_positions.norm"),
    (r"deberta\.encoder\.layer\.", "tupe.encoder.layers."),
    (r"\.attention\.self\.(query|key|value)_", lambda m: f".self_attn.{m[1][0]}_"),
    (r"\.attention\.self\.pos_(query|key)_", lambda m: f".self_attn.layer_terms.pos_{m[1][0]}_"),
    (r"\.attention\.output\.dense", ".self_attn.out_proj"),
    (r"\.attention\.output\.LayerNorm", ".self_attn_layer_norm"),
    (r"\.intermediate\.dense", ".fc1"),
    (r"\.output\.dense", ".fc2"),
    (r"\.output\.LayerNorm", ".final_layer_norm"),
)
CLASSIFIER = ((r"^classifier\.", "classifier.out_proj."), (r"^pooler\.", "classifier."))


def theirs_of(task: str, **options) -> nn.Module:
    """A model of transformers; parameters are so large that attention is sharp."""
    config = transformers.DebertaV2Config(**{**SIZES, **options})
    return enlarged(getattr(transformers, f"DebertaV2{task}")(config).eval(), 1)


def ours_of(theirs: nn.Module, **changes) -> nn.Module:
    """The same model with our classes; `changes` are of its configuration."""
    task = type(theirs).__name__.removeprefix("DebertaV2")
    there = theirs.config
    clip = there.max_relative_positions
    shared = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
    shared += ("intermediate_size", "max_position_embeddings", "hidden_act", "pad_token_id")
    shared += ("hidden_dropout_prob", "attention_probs_dropout_prob", "type_vocab_size")
    shared += ("layer_norm_eps", "num_labels", "pooler_dropout")
    settings = {name: getattr(there, name) for name in shared}
    config = huggingface.TupeConfig(
        **{**settings, **changes},
        classifier_act=there.pooler_hidden_act,
        position_encoding="deberta",
        position_options={
            "relative_clip": clip if clip > 0 else there.max_position_embeddings,
            "deberta_released": True,
            "deberta_buckets": max(getattr(there, "position_buckets", -1), 0),
            "deberta_terms": "+".join(sorted(there.pos_att_type or [])) or "none",
            "deberta_share": getattr(there, "share_att_key", False),
            "deberta_norm": "layer_norm" in getattr(there, "norm_rel_ebd", "none"),
            "deberta_absolute": there.position_biased_input,
            "deberta_dropout": there.hidden_dropout_prob,
        },
    )
    ours = getattr(huggingface, f"Tupe{task}")(config).eval()
    state = {new_name(name, task): value for name, value in theirs.state_dict().items()}
    if task == "ForMaskedLM":
        state["lm_head.decoder.weight"] = state["tupe.embed_tokens.weight"]
    ours.load_state_dict(state)
    return ours


def new_name(name: str, task: str) -> str:
    """The name of a parameter here."""
    if task == "Model":
        return new_name(f"deberta.{name}", "").removeprefix("tupe.")
    for pattern, target in (*NAMES, *(CLASSIFIER if task == "ForSequenceClassification" else ())):
        name = re.sub(pattern, target, name)
    return name


def batch(length: int, *padded: int, left: bool = False) -> dict[str, torch.Tensor]:
    """Random tokens, B×T, with this many of padding in each sequence, and their mask."""
    generator = torch.Generator().manual_seed(length)
    ids = torch.randint(1, 60, (len(padded), length), generator=generator)
    kept = length - torch.tensor(padded)[:, None]
    mask = (torch.arange(length) < kept).long()
    if left:
        mask = mask.flip(1)
    return {"input_ids": ids * mask, "attention_mask": mask}
