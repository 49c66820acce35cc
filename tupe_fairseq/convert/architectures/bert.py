"""BERT, RoBERTa and its relatives: the encoding `learned` under other names.

BERT counts positions from 0, RoBERTa there and here from padding_idx + 1 = 2. Both have a table of
token types, which is zero where the model here has none. RoBERTa's tokenizer uses type 0 alone.
XLM-RoBERTa and CamemBERT are RoBERTa with other tokenizers.
"""

from dataclasses import replace

from ..keys import Rule, Table
from ..models import EMBED_TOKENS, ENCODER, LM_HEAD, ONE_HEAD, POOLER, POSITIONS, TOKEN_TYPES
from .base import MODEL_TYPE, Architecture

#: What BERT and RoBERTa do, by the names of `TupeConfig`.
SETTINGS = {
    "position_encoding": "learned",
    "layernorm_embedding": True,
    "normalize_before": False,
    "attention_window": None,
    "classifier_act": "tanh",
    "quant_noise_pq": 0.0,
}
#: The activation of the language modeling head is always gelu.
REQUIRED = {"hidden_act": "gelu", "position_embedding_type": "absolute"}

#: Heads of one layer; of BERT, that for texts as well.
TOKEN_RULES = (
    Rule("classifier.*", f"{ONE_HEAD}out_proj.*"),
    Rule("qa_outputs.*", f"{ONE_HEAD}out_proj.*"),
)
#: Heads of RoBERTa and of MPNet.
HEAD_RULES = (
    Rule("lm_head.dense.*", f"{LM_HEAD}dense.*"),
    Rule("lm_head.layer_norm.*", f"{LM_HEAD}layer_norm.*"),
    Rule("lm_head.decoder.*", f"{LM_HEAD}decoder.*"),
    Rule("lm_head.bias", f"{LM_HEAD}decoder.bias"),
    Rule("classifier.*.*", f"{ONE_HEAD}*.*"),
    *TOKEN_RULES,
)


def stack_rules(model: str) -> Table:
    """Names of embeddings and layers, which RoBERTa has from BERT."""
    embeddings = f"{model}.embeddings."
    layer = f"{model}.encoder.layer.*."
    ours = f"{ENCODER}layers.*."
    return (
        Rule(f"{embeddings}word_embeddings.weight", EMBED_TOKENS),
        Rule(f"{embeddings}position_embeddings.weight", POSITIONS),
        Rule(f"{embeddings}token_type_embeddings.weight", TOKEN_TYPES),
        Rule(f"{embeddings}LayerNorm.*", f"{ENCODER}layernorm_embedding.*"),
        Rule(f"{layer}attention.self.query.*", f"{ours}self_attn.q_proj.*"),
        Rule(f"{layer}attention.self.key.*", f"{ours}self_attn.k_proj.*"),
        Rule(f"{layer}attention.self.value.*", f"{ours}self_attn.v_proj.*"),
        Rule(f"{layer}attention.output.dense.*", f"{ours}self_attn.out_proj.*"),
        Rule(f"{layer}attention.output.LayerNorm.*", f"{ours}self_attn_layer_norm.*"),
        Rule(f"{layer}intermediate.dense.*", f"{ours}fc1.*"),
        Rule(f"{layer}output.dense.*", f"{ours}fc2.*"),
        Rule(f"{layer}output.LayerNorm.*", f"{ours}final_layer_norm.*"),
    )


BERT = Architecture(
    model_type="bert",
    rules=(
        *stack_rules("bert"),
        Rule("cls.predictions.transform.dense.*", f"{LM_HEAD}dense.*"),
        Rule("cls.predictions.transform.LayerNorm.*", f"{LM_HEAD}layer_norm.*"),
        Rule("cls.predictions.decoder.*", f"{LM_HEAD}decoder.*"),
        Rule("cls.predictions.bias", f"{LM_HEAD}decoder.bias"),
        # The pooler is the first layer of the classifier, if there is one.
        Rule("bert.pooler.dense.*", f"{ONE_HEAD}dense.*"),
        Rule("bert.pooler.dense.*", f"{POOLER}dense.*"),
        *TOKEN_RULES,
    ),
    settings=SETTINGS,
    required=REQUIRED,
    first_position=0,
    types=2,
)
ROBERTA = Architecture(
    model_type="roberta",
    rules=(
        *stack_rules("roberta"),
        Rule("roberta.pooler.dense.*", f"{POOLER}dense.*"),
        *HEAD_RULES,
    ),
    settings=SETTINGS,
    required={**REQUIRED, "pad_token_id": 1},
    first_position=2,
    types=1,
)
XLM_ROBERTA = replace(ROBERTA, model_type="xlm-roberta", prefix="roberta", kept=(MODEL_TYPE,))
CAMEMBERT = replace(XLM_ROBERTA, model_type="camembert")
