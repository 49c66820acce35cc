"""Models of `tupe_fairseq.huggingface`: every encoding, encoders and language models."""

from ..families import CAUSAL, MASKED, Family
from ..keys import Rule, Table
from ..models import HEAD, HEADS, LM_HEAD
from .base import PROBLEM, Architecture


def stack_rules(family: Family) -> Table:
    """Names of embeddings, positions and layers."""
    parts = ("embed_positions", "embed_token_types", "layernorm_embedding", "layers", "layer_norm")
    return (
        Rule("tupe.embed_tokens.weight", family.embeddings),
        *(Rule(f"tupe.encoder.{name}.**", f"{family.stack}{name}.**") for name in parts),
    )


TUPE = Architecture(
    model_type="tupe",
    rules=(
        *stack_rules(MASKED),
        Rule("lm_head.dense.*", f"{LM_HEAD}dense.*"),
        Rule("lm_head.layer_norm.*", f"{LM_HEAD}layer_norm.*"),
        Rule("lm_head.decoder.*", f"{LM_HEAD}*"),
        Rule("classifier.*.*", f"{HEADS}{HEAD}.*.*"),
        Rule("classifier.*", f"{HEADS}{HEAD}.out_proj.*"),
        Rule("qa_outputs.*", f"{HEADS}{HEAD}.out_proj.*"),
    ),
    kept=(PROBLEM,),
)
TUPE_LM = Architecture(
    model_type="tupe",
    rules=(*stack_rules(CAUSAL), Rule("lm_head.weight", CAUSAL.output)),
    family=CAUSAL,
    # fairseq's language models have no setting for it.
    required={"layer_norm_eps": 1e-5},
)
