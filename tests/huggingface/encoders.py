"""Encoders of transformers with random parameters, and batches for them."""

import pytest
import torch

from tests.attention.cases import enlarged

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from tests.huggingface.deberta import RELEASED, SIZES  # noqa: E402

BERT_SIZES = {name: value for name, value in SIZES.items() if name != "relative_attention"}
ROBERTA_SIZES = {**BERT_SIZES, "pad_token_id": 1, "max_position_embeddings": 26}
MODERN_SIZES = {
    "vocab_size": 60,
    "hidden_size": 48,
    "intermediate_size": 40,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "max_position_embeddings": 1024,
    "local_attention": 8,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
BIASES = dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), True)
OPTIONS = {
    "bert": ("Bert", BERT_SIZES),
    "roberta": ("Roberta", ROBERTA_SIZES),
    "xlm_roberta": ("XLMRoberta", ROBERTA_SIZES),
    "camembert": ("Camembert", ROBERTA_SIZES),
    "bert_relu": ("Bert", {**BERT_SIZES, "hidden_act": "relu", "layer_norm_eps": 1e-3}),
    "v3": ("DebertaV2", {**SIZES, **RELEASED, "type_vocab_size": 0}),
    "v2": (
        "DebertaV2",
        {**SIZES, "pos_att_type": ["c2p"], "position_biased_input": True, "type_vocab_size": 2},
    ),
    "own_projections": ("DebertaV2", {**SIZES, **RELEASED, "share_att_key": False}),
    "modernbert": ("ModernBert", MODERN_SIZES),
    "mpnet": ("MPNet", {**ROBERTA_SIZES, "relative_attention_num_buckets": 32}),
    "modernbert_biases": (
        "ModernBert",
        {**MODERN_SIZES, **BIASES, "hidden_activation": "silu", "global_attn_every_n_layers": 2},
    ),
    "modernbert_global": ("ModernBert", {**MODERN_SIZES, "global_attn_every_n_layers": 1}),
    "no_terms": ("DebertaV2", {**SIZES, **RELEASED, "pos_att_type": []}),
}
NAMES = ("bert", "v3", "modernbert", "mpnet")
#: transformers recomputes no layers of MPNet.
RECOMPUTED = NAMES[:3]
#: transformers 4 takes fewer arguments.
IS_OLD = transformers.__version__ < "5"
with_transformers_5 = pytest.mark.skipif(IS_OLD, reason="transformers 4 is installed")
LENGTHS = (20, 1, 7, 20, 13)
every_model = pytest.mark.parametrize("name", OPTIONS)
#: transformers 5 calls torch.compiler.is_exporting where it is compiled or exported.
compiles_transformers = pytest.mark.skipif(
    not hasattr(torch.compiler, "is_exporting"),
    reason="this torch can neither compile nor export transformers' own models",
)


def build(name: str, head: str = "Model", seed: int = 0, **changes):
    """A model of transformers in eval mode, with parameters large enough to tell positions."""
    kind, sizes = OPTIONS[name]
    config = getattr(transformers, f"{kind}Config")(**{**sizes, **changes})
    torch.manual_seed(seed)
    return enlarged(getattr(transformers, f"{kind}{head}")(config), seed=seed).eval()


def batch(model, side: str = "right"):
    """Random ids with padding on this side, and their mask."""
    ids = torch.randint(4, model.config.vocab_size, (len(LENGTHS), max(LENGTHS)))
    mask = torch.ones_like(ids)
    for row, length in enumerate(LENGTHS):
        mask[row, length:] = 0
    if side == "left":
        mask = mask.flip(1)
    return {"input_ids": ids.masked_fill(mask == 0, model.config.pad_token_id or 0)} | (
        {} if side == "none" else {"attention_mask": mask}
    )


def is_optimized(model) -> bool:
    """Whether this package computes a part of it."""
    return any(type(each).__module__.startswith("tupe_fairseq.") for each in model.modules())


def first_layer(model) -> torch.nn.Module:
    """The first linear layer of the feed-forward block of the first layer."""
    base = getattr(model, model.base_model_prefix)
    if hasattr(base, "layers"):
        return base.layers[0].mlp.Wi
    return base.encoder.layer[0].intermediate.dense


def same_at_tokens(ours, theirs, tolerance=1e-5, **more):
    """The vectors of both models are equal where there are tokens."""
    inputs = {**batch(theirs), **more}
    shown = inputs["attention_mask"].bool()
    expected = theirs(**inputs)[0][shown]
    torch.testing.assert_close(ours(**inputs)[0][shown], expected, atol=tolerance, rtol=0)
