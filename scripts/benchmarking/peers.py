"""Models of Hugging Face's transformers, which the benchmarks measure beside ours.

Each has the dimensions and dropout of the workload, and otherwise its released settings. Some are
measured a second time after `tupe_fairseq.huggingface.optimize`.
"""

import importlib.util
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tupe_fairseq.extras import import_extra

from .compare import Contender

PADDING = 1


class Peer(NamedTuple):
    """A model: prefix of its classes, its attention, names of dropouts, its own settings.

    `optimized`: after `optimize`.
    """

    kind: str
    attention: str
    dropouts: tuple[str, ...]
    settings: dict[str, Any]
    optimized: bool = False

    @property
    def contender(self) -> Contender:
        """Its row."""
        if self.optimized:
            return Contender(f"optimize(HF {self.kind})", "auto")
        return Contender(f"HF {self.kind}", self.attention)


OF_BERT = ("hidden_dropout_prob", "attention_probs_dropout_prob")
OF_MODERNBERT = ("embedding_dropout", "mlp_dropout", "attention_dropout")
#: Those of DeBERTa-v3: 256 buckets; content and positions share the projection of keys.
DEBERTA = {
    "relative_attention": True,
    "position_buckets": 256,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": ["c2p", "p2c"],
    "position_biased_input": False,
}
PEERS = {
    "hf_roberta": Peer("Roberta", "sdpa", OF_BERT, {"type_vocab_size": 1}),
    "hf_deberta_v2": Peer("DebertaV2", "eager", OF_BERT, DEBERTA),
    "hf_modernbert": Peer("ModernBert", "sdpa", OF_MODERNBERT, {"reference_compile": False}),
}
PEERS |= {
    f"optimized_{name.removeprefix('hf_')}": peer._replace(optimized=True)
    for name, peer in PEERS.items()
}


def available() -> list[str]:
    """The names of peers as they are, or none without transformers."""
    has_transformers = importlib.util.find_spec("transformers")
    return [name for name, peer in PEERS.items() if has_transformers and not peer.optimized]


def build(peer: Peer, work: Any, vocabulary: int) -> nn.Module:
    """A peer with random parameters: tokens B×T to features B×T×C, or to classes of a text.

    Args:
        peer: which.
        work: workload.
        vocabulary: number of token embeddings.

    Raises:
        UsageError: transformers is not installed.
    """
    transformers = import_extra("transformers", "hf")
    # ModernBERT's feed-forward network is gated. With 2/3 of the width it has as many products.
    ffn = round(work.ffn * 2 / 3) if peer.kind == "ModernBert" else work.ffn
    config = getattr(transformers, f"{peer.kind}Config")(
        vocab_size=vocabulary,
        num_hidden_layers=work.layers,
        hidden_size=work.width,
        num_attention_heads=work.heads,
        intermediate_size=ffn,
        max_position_embeddings=work.length + PADDING + 1,
        pad_token_id=PADDING,
        attn_implementation=peer.attention,
        num_labels=2,
        **dict.fromkeys(peer.dropouts, work.dropout),
        **peer.settings,
    )
    predicts = work.mode == "predict"
    classes = f"{peer.kind}ForSequenceClassification" if predicts else f"{peer.kind}Model"
    model = getattr(transformers, classes)(config)
    if not predicts:
        # No feature depends on RoBERTa's pooler.
        model.pooler = None
    if peer.optimized:
        from tupe_fairseq.huggingface import optimize

        model = optimize(model)
    return (Classes if predicts else Features)(model)


class Classes(nn.Module):
    """A classifier of transformers, called like the hub's."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def predict(self, head: str, tokens: Tensor) -> Tensor:
        """Log-probabilities of two classes, B×2; there is one head."""
        mask = (tokens != PADDING).to(torch.long)
        return self.model(input_ids=tokens, attention_mask=mask).logits.log_softmax(-1)


class Features(nn.Module):
    """A model of transformers, called like ours."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, features_only: bool = True) -> tuple[Tensor, None]:
        """The features; `features_only` is fairseq's, and true."""
        mask = (tokens != PADDING).to(torch.long)
        return self.model(input_ids=tokens, attention_mask=mask).last_hidden_state, None
