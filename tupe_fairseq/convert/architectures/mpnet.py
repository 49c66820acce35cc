"""MPNet: the encoding `mpnet` under other names; otherwise RoBERTa without token types."""

from ..keys import Rule
from ..models import EMBED_TOKENS, ENCODER, POOLER, POSITIONS
from .base import MODEL_TYPE, Architecture
from .bert import HEAD_RULES, SETTINGS

EMBEDDINGS = "mpnet.embeddings."
LAYER = "mpnet.encoder.layer.*."
OURS = f"{ENCODER}layers.*."

MPNET = Architecture(
    model_type="mpnet",
    rules=(
        Rule(f"{EMBEDDINGS}word_embeddings.weight", EMBED_TOKENS),
        Rule(f"{EMBEDDINGS}position_embeddings.weight", POSITIONS),
        Rule(f"{EMBEDDINGS}LayerNorm.*", f"{ENCODER}layernorm_embedding.*"),
        Rule(
            "mpnet.encoder.relative_attention_bias.weight",
            f"{ENCODER}embed_positions.relative_bias.weight",
        ),
        *(
            Rule(f"{LAYER}attention.attn.{name}.*", f"{OURS}self_attn.{name}_proj.*")
            for name in "qkv"
        ),
        Rule(f"{LAYER}attention.attn.o.*", f"{OURS}self_attn.out_proj.*"),
        Rule(f"{LAYER}attention.LayerNorm.*", f"{OURS}self_attn_layer_norm.*"),
        Rule(f"{LAYER}intermediate.dense.*", f"{OURS}fc1.*"),
        Rule(f"{LAYER}output.dense.*", f"{OURS}fc2.*"),
        Rule(f"{LAYER}output.LayerNorm.*", f"{OURS}final_layer_norm.*"),
        Rule("mpnet.pooler.dense.*", f"{POOLER}dense.*"),
        *HEAD_RULES,
    ),
    # transformers computes 32 buckets, whatever config.json says.
    settings={**SETTINGS, "position_encoding": "mpnet", "num_buckets": 32, "max_distance": 128},
    required={"hidden_act": "gelu", "pad_token_id": 1, "relative_attention_num_buckets": 32},
    first_position=2,
    kept=(MODEL_TYPE,),
)
