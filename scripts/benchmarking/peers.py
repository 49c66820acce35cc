"""Models of Hugging Face's transformers, which the benchmarks measure beside ours.

Each has the dimensions and dropout of the workload, and otherwise its released settings. Some are
measured again with faster layers: of `tupe_fairseq.huggingface.optimize`, and DeBERTa-v3 by two
packages with kernels for GPUs.
"""

import importlib
import importlib.util
import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tupe_fairseq import UsageError
from tupe_fairseq.base.extras import import_extra

from .compare import Contender

PADDING = 1
#: The maximum length of a model at least: the buckets of DeBERTa-v3 need more than 129.
SHORTEST = 512


class Peer(NamedTuple):
    """A model: prefix of its classes, its attention, names of dropouts, its own settings.

    `package`: what replaces its layers or its class, with the same weights and results.
    """

    kind: str
    attention: str
    dropouts: tuple[str, ...]
    settings: dict[str, Any]
    package: str = "transformers"

    @property
    def contender(self) -> Contender:
        """Its row."""
        if self.package == OURS:
            return Contender(f"optimize(HF {self.kind})", "auto")
        if self.package in KERNELS:
            return Contender(f"{self.package} {self.kind}", "triton")
        return Contender(f"HF {self.kind}", self.attention)


OURS = "tupe_fairseq"
#: Packages with Triton kernels for DeBERTa. flashdeberta drops no attention weights in training.
KERNELS = ("disentangled_flash", "flashdeberta")
OF_BERT = ("hidden_dropout_prob", "attention_probs_dropout_prob")
#: `optimize` keeps the layers of a ModernBERT with its other dropouts, which released ones lack.
OF_MODERNBERT = ("mlp_dropout",)
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
    f"optimized_{name.removeprefix('hf_')}": peer._replace(package=OURS)
    for name, peer in PEERS.items()
} | {name: PEERS["hf_deberta_v2"]._replace(package=name) for name in KERNELS}


def available() -> list[str]:
    """The names of peers as they are, or none without transformers."""
    has_transformers = importlib.util.find_spec("transformers")
    return [name for name in PEERS if has_transformers and name.startswith("hf_")]


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
        max_position_embeddings=max(SHORTEST, work.length + PADDING + 1),
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
    model = with_layers_of(peer.package, model.train(work.mode == "training"), predicts)
    return (Classes if predicts else Features)(model)


def with_layers_of(package: str, model: Any, predicts: bool) -> nn.Module:
    """A model of transformers with the layers of a package; in training mode, to be trained.

    Raises:
        UsageError: the package is not installed, or cannot replace the layers.
    """
    if package == OURS:
        from tupe_fairseq.huggingface import optimize

        with warnings.catch_warnings(record=True) as reasons:
            warnings.simplefilter("always")
            model = optimize(model)
        if reasons:
            raise UsageError(f"--peers names an optimized model, but {reasons[0].message}")
        return model
    if package not in KERNELS:
        return model
    try:
        library = importlib.import_module(package)
    except ImportError as error:
        raise UsageError(
            f"--peers names {package}, but importing it fails ({error}); install it on a machine "
            f"with a GPU: pip install {package.replace('_', '-')}."
        ) from error
    if package == "flashdeberta":
        kind = f"Flash{type(model).__name__}"
        faster = getattr(library, kind)(model.config).train(model.training)
        faster.load_state_dict(model.state_dict())
        return faster
    encoders = model.deberta if predicts else model
    library.optimize_deberta(encoders, inference=not model.training)
    return model


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
