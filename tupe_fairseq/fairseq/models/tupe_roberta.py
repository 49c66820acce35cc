"""`tupe_roberta`: stock fairseq RoBERTa with any position encoding.

Heads, masked-LM interface, pruning and hub methods are inherited from RoBERTa; the encoder is
ours.
"""

from argparse import Namespace
from collections import OrderedDict
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models import register_model
from fairseq.models.roberta.model import (
    RobertaClassificationHead,
    RobertaEncoder,
    RobertaModel,
)
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from torch import Tensor, nn

from ...base.errors import DataError
from ...transformer.layer import set_epsilon
from .. import commands
from ..arguments.completion import register_architectures
from ..arguments.roberta import ROBERTA
from ..hub import tokenizer_json  # noqa: F401 (registers --bpe tokenizer_json)
from ..hub.roberta import RobertaFromPretrained
from .checked_model import CheckedModel
from .sentence_encoder import TupeSentenceEncoder


class TupeRobertaEncoder(RobertaEncoder):
    """RoBERTa's encoder and LM head around `TupeSentenceEncoder`."""

    def build_encoder(
        self, args: Namespace, dictionary: Dictionary, embed_tokens: nn.Embedding
    ) -> TupeSentenceEncoder:
        encoder = TupeSentenceEncoder(args, dictionary, embed_tokens)
        encoder.apply(init_bert_params)
        return encoder

    def output_layer(
        self, features: Tensor, masked_tokens: Tensor | None = None, **unused: Any
    ) -> Tensor:
        features = self.sentence_encoder.embed_positions.before_lm_head(features)
        return super().output_layer(features, masked_tokens)

    def forward(
        self,
        src_tokens: Tensor,
        features_only: bool = False,
        return_all_hiddens: bool = False,
        masked_tokens: Tensor | None = None,
        token_embeddings: Tensor | None = None,
        read: Tensor | None = None,
        **unused: Any,
    ) -> tuple[Tensor, dict[str, Any]]:
        """As RobertaEncoder's, which drops the token_embeddings (B×T×C) that R3F passes to it.

        The last feed-forward block is computed only for the tokens that are read: those at `read`,
        M indices among the B·T cells of the batch, or those that are masked. Their features are
        M×C.
        """
        stack = self.sentence_encoder
        if masked_tokens is not None and not (features_only or return_all_hiddens):
            read = masked_tokens.flatten().nonzero().squeeze(1)
        encoded = stack(src_tokens, None, return_all_hiddens, token_embeddings, read)
        states = encoded["encoder_states"]
        extra = {"inner_states": states if return_all_hiddens else None}
        if read is None:
            # T×B×C -> B×T×C
            x = encoded["encoder_out"][0].transpose(0, 1)
            return (x if features_only else self.output_layer(x, masked_tokens)), extra
        (x,) = encoded["read"]
        if features_only:
            return x, extra
        positions = read % src_tokens.size(1)
        return self.lm_head(stack.embed_positions.before_lm_head(x, positions)), extra


@register_model("tupe_roberta")
class TupeRobertaModel(CheckedModel, RobertaFromPretrained, RobertaModel):
    """RoBERTa with `--position-encoding`."""

    arguments = ROBERTA
    stacks = ("encoder.sentence_encoder",)

    @classmethod
    def from_arguments(cls, args: Namespace, task: Any) -> "TupeRobertaModel":
        encoder = TupeRobertaEncoder(args, task.source_dictionary)
        set_epsilon(encoder, args.layer_norm_eps)
        return cls(args, encoder)

    @classmethod
    def data_dictionary(cls, task: Any) -> Dictionary:
        return task.source_dictionary

    @commands.ends_commands_in_one_line
    def forward(
        self,
        src_tokens: Tensor,
        features_only: bool = False,
        return_all_hiddens: bool = False,
        classification_head_name: str | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, dict[str, Any]]:
        """As RobertaModel's; heads for sentences read only the first token.

        Raises:
            UsageError: see `CheckedModel.forward`.
        """
        self.check_ready()
        if classification_head_name is None:
            return self.encoder(src_tokens, features_only, return_all_hiddens, **kwargs)
        head = self.classification_heads[classification_head_name]
        read = None
        if type(head) is RobertaClassificationHead and not return_all_hiddens:
            # The first token of each sequence.
            end = src_tokens.numel()
            read = torch.arange(0, end, src_tokens.size(1), device=src_tokens.device)
        x, extra = self.encoder(src_tokens, True, return_all_hiddens, read=read, **kwargs)
        # B×C -> B×1×C, as these heads read it.
        return head(x if read is None else x[:, None]), extra

    def register_token_head(self, name: str, num_classes: int) -> None:
        """Register a head that classifies each token, beside the heads for sentences.

        It maps B×T×C to B×T×classes by dropout and one linear layer.
        """
        parts = OrderedDict(
            dropout=nn.Dropout(self.args.pooler_dropout),
            out_proj=nn.Linear(self.args.encoder_embed_dim, num_classes),
        )
        self.classification_heads[name] = nn.Sequential(parts)

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """As fairseq's, which expects that all heads are for sentences.

        Heads that the state dict lacks are initialised from the first layer of its head `pooler`,
        which is BERT's, if the widths are equal.
        """
        prefix = f"{name}.classification_heads." if name else "classification_heads."
        heads = {key.removeprefix(prefix).split(".")[0] for key in state_dict if prefix in key}
        taken: dict[str, Tensor] = {}
        for head in sorted(heads):
            if f"{prefix}{head}.dense.weight" not in state_dict:
                weight = f"{prefix}{head}.out_proj.weight"
                bias = f"{prefix}{head}.out_proj.bias"
                if getattr(self.args, "load_checkpoint_heads", False):
                    self.register_token_head(head, len(state_dict[weight]))
                if head in self.classification_heads:
                    taken |= {weight: state_dict[weight], bias: state_dict[bias]}
                del state_dict[weight], state_dict[bias]
        for head in {*self.classification_heads} - heads - {"pooler"}:
            for part, new in self.classification_heads[head].state_dict().items():
                pooler = state_dict.get(f"{prefix}pooler.{part}", new)
                if part.startswith("dense.") and pooler.shape == new.shape:
                    taken[f"{prefix}{head}.{part}"] = pooler
        super().upgrade_state_dict_named(state_dict, name)
        state_dict.update(taken)

    @commands.ends_commands_in_one_line
    def get_targets(self, sample: dict[str, Any], net_output: Any) -> Tensor:
        """Targets of a batch.

        Raises:
            DataError: the data has no labels.
        """
        if "target" not in sample:
            raise DataError(
                "the data have no labels: `label/` beside `input0/` must hold them for this split "
                "(for regression: a file label/SPLIT.label)."
            )
        return super().get_targets(sample, net_output)


register_architectures(ROBERTA)
