"""The models of benchmark_training.py: stock RoBERTa, ours, and ours where there is no fairseq."""

import importlib.util
from argparse import Namespace
from types import SimpleNamespace
from typing import Any

from torch import Tensor, nn

from tupe_fairseq import build_position_encoding
from tupe_fairseq.transformer.config import StackConfig
from tupe_fairseq.transformer.stack import TransformerStack

from .command import VARIANTS
from .compare import Contender
from .peers import PADDING

STOCK = Contender("stock RoBERTa", "fairseq")
HAS_FAIRSEQ = importlib.util.find_spec("fairseq") is not None


def build(work: Any, contender: Contender, vocabulary: int) -> nn.Module:
    """A model with random parameters: tokens B×T to features B×T×C, or the hub of a classifier.

    Args:
        work: workload; its mode "predict" needs fairseq.
        contender: STOCK, or one of ours with its backend.
        vocabulary: number of token embeddings.
    """
    if not HAS_FAIRSEQ:
        return WithoutFairseq(work, contender, vocabulary)
    from fairseq.data import Dictionary
    from fairseq.models.roberta.model import RobertaModel

    from tupe_fairseq import TupeRobertaModel

    dictionary = Dictionary()
    for word in range(vocabulary - len(dictionary)):
        dictionary.add_symbol(str(word))
    task = SimpleNamespace(source_dictionary=dictionary)
    arguments = Namespace(
        encoder_layers=work.layers,
        encoder_embed_dim=work.width,
        encoder_attention_heads=work.heads,
        encoder_ffn_embed_dim=work.ffn,
        dropout=work.dropout,
        attention_dropout=work.dropout,
        max_positions=work.length,
    )
    if contender != STOCK:
        name, options = VARIANTS.get(contender.name, (contender.name, {}))
        arguments.position_encoding = name
        arguments.attention_backend = contender.backend
        arguments.compile_layers = work.compiled
        vars(arguments).update(options)
    model = (RobertaModel if contender == STOCK else TupeRobertaModel).build_model(arguments, task)
    return with_head(model, task) if work.mode == "predict" else model


def with_head(model: Any, task: Any) -> nn.Module:
    """What `from_pretrained` returns of a model with a head for two classes."""
    from fairseq.models.roberta.hub_interface import RobertaHubInterface

    from tupe_fairseq import TupeRobertaModel
    from tupe_fairseq.fairseq.hub.roberta import TupeRobertaHubInterface

    model.register_classification_head("head", num_classes=2)
    ours = isinstance(model, TupeRobertaModel)
    kind = TupeRobertaHubInterface if ours else RobertaHubInterface
    return kind(SimpleNamespace(bpe=None), task, model)


class WithoutFairseq(nn.Module):
    """Token embeddings and the encoder of `tupe_roberta`, called like it."""

    def __init__(self, work: Any, contender: Contender, vocabulary: int):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocabulary, work.width, PADDING)
        sizes = (work.width, work.heads, work.length)
        more = {"vocab_size": vocabulary, "num_layers": work.layers}
        name, options = VARIANTS.get(contender.name, (contender.name, {}))
        self.encoder = TransformerStack(
            build_position_encoding(name, *sizes, **more, **options),
            StackConfig(
                work.layers,
                work.ffn,
                dropout=work.dropout,
                attention_dropout=work.dropout,
                layernorm_embedding=True,
                attention_backend=contender.backend,
                compile_layers=work.compiled,
            ),
        )

    def forward(self, tokens: Tensor, features_only: bool = True) -> tuple[Tensor, None]:
        """The features; `features_only` is fairseq's, and true."""
        return self.encoder(self.embed_tokens(tokens), tokens == PADDING, tokens), None
