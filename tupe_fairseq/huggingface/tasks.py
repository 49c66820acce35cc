"""Encoders with a head, with the names and interfaces of transformers."""

from collections.abc import Callable
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn
from transformers.modeling_outputs import (
    MaskedLMOutput,
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)

from ..base.errors import ConfigurationError
from ..transformer.pooling import mean_of_tokens
from .configuration import TupeConfig
from .modeling import ACTIVATIONS, EMBED_TOKENS
from .padding import NO_LABEL, Read, check_shape, first_tokens
from .with_head import TupeWithHead

#: Activations of the head for sequence classification.
CLASSIFIER_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    **ACTIVATIONS,
    "linear": nn.Identity(),
}


class MaskedLMHead(nn.Module):
    """RoBERTa's language modeling head: C -> C, activation, LayerNorm, then a logit per token."""

    def __init__(self, config: TupeConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.layer_norm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)
        self.activation_fn = ACTIVATIONS[config.hidden_act]

    def forward(self, hidden: Tensor) -> Tensor:
        """B×T×C -> B×T×V."""
        return self.decoder(self.layer_norm(self.activation_fn(self.dense(hidden))))


class ClassificationHead(nn.Module):
    """RoBERTa's head for sentences: dropout, C -> C, activation, dropout, then the classes.

    With `classifier_norm`, there is a LayerNorm after the activation.

    Raises:
        ConfigurationError: unknown classifier_act or classifier_pooling.
    """

    def __init__(self, config: TupeConfig, num_labels: int):
        super().__init__()
        if config.classifier_act not in CLASSIFIER_ACTIVATIONS:
            raise ConfigurationError(
                f"classifier_act is {config.classifier_act!r}, but must be one of: "
                f"{', '.join(CLASSIFIER_ACTIVATIONS)}."
            )
        if config.classifier_pooling not in ("cls", "mean"):
            raise ConfigurationError(
                f"classifier_pooling is {config.classifier_pooling!r}, but must be cls or mean."
            )
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = classifier_dropout(config)
        first = config.pooler_dropout
        self.pooler_dropout = self.dropout if first is None else nn.Dropout(first)
        norm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.norm = norm if config.classifier_norm else nn.Identity()
        self.out_proj = nn.Linear(config.hidden_size, num_labels)
        self.activation_fn = CLASSIFIER_ACTIVATIONS[config.classifier_act]

    def forward(self, hidden: Tensor) -> Tensor:
        """Vectors, B×C -> B×classes or B×T×C -> B×T×classes."""
        x = self.norm(self.activation_fn(self.dense(self.pooler_dropout(hidden))))
        return self.out_proj(self.dropout(x))


def classifier_dropout(config: TupeConfig) -> nn.Dropout:
    """The dropout of classification heads."""
    p = config.classifier_dropout
    return nn.Dropout(config.hidden_dropout_prob if p is None else p)


def token_classifier(config: TupeConfig, num_labels: int) -> nn.Module:
    """The layers that classify each token, B×T×C -> B×T×classes."""
    if config.classifier_norm:
        return ClassificationHead(config, num_labels)
    return nn.Linear(config.hidden_size, num_labels)


class TupeForMaskedLM(TupeWithHead):
    """RoBERTa's language modeling head: logits B×T×V; labels B×T, −100 where there is none.

    In training with `config.sparse_prediction`, logits are M×V, only for the M tokens that have a
    label.
    """

    output_class = MaskedLMOutput
    accepts_loss_kwargs = True
    _tied_weights_keys: ClassVar = {"lm_head.decoder.weight": EMBED_TOKENS}

    def __init__(self, config: TupeConfig):
        super().__init__(config)
        self.lm_head = MaskedLMHead(config)
        self.post_init()

    @property
    def _is_sparse(self) -> bool:
        return self.training and self.config.sparse_prediction

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head.decoder

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        self.lm_head.decoder = new_embeddings

    def tokens_read(
        self, x: Tensor, attention_mask: Tensor | None, labels: Tensor | None
    ) -> Read | None:
        if labels is None or not self._is_sparse:
            return None
        rows, columns = labels.ne(NO_LABEL).nonzero(as_tuple=True)
        return rows, columns

    def logits(self, x: Tensor, attention_mask: Tensor | None, read: Read | None) -> Tensor:
        return self.lm_head(self.tupe.before_lm_head(x, attention_mask, read))

    def loss(self, logits: Tensor, labels: Tensor, num_items_in_batch: Any) -> Tensor:
        size = self.config.vocab_size
        if self._is_sparse:
            labels = labels[labels.ne(NO_LABEL)]
        return self.loss_function(logits, labels, size, num_items_in_batch=num_items_in_batch)


class TupeWithSentenceHead(TupeWithHead):
    """A head on the first unmasked token of each sequence, or on the mean of unmasked tokens."""

    classifier: ClassificationHead

    def tokens_read(
        self, x: Tensor, attention_mask: Tensor | None, labels: Tensor | None
    ) -> Read | None:
        if self.config.classifier_pooling == "mean":
            return None
        return first_tokens(x, attention_mask)

    def check_labels(self, labels: Tensor, batch: int, length: int) -> None:
        # Of several scores each, B×classes.
        check_shape("labels", labels, (batch, *labels.shape[1:]))

    def logits(self, x: Tensor, attention_mask: Tensor | None, read: Read | None) -> Tensor:
        if read is None:
            mask = x.new_ones(x.shape[:2]) if attention_mask is None else attention_mask
            x = mean_of_tokens(x, mask)
        return self.classifier(x)


class TupeForSequenceClassification(TupeWithSentenceHead):
    """RoBERTa's head on the first token: logits B×classes.

    `config.problem_type` names the loss. Labels are B, or B×classes of 0 and 1 for several each.
    """

    output_class = SequenceClassifierOutput

    def __init__(self, config: TupeConfig):
        super().__init__(config)
        self.classifier = ClassificationHead(config, config.num_labels)
        self.post_init()

    def loss(self, logits: Tensor, labels: Tensor, num_items_in_batch: Any) -> Tensor:
        kind = self.config.problem_type
        one_score = kind is None and self.num_labels == 1
        if one_score or kind in ("regression", "multi_label_classification"):
            labels = labels.to(logits.dtype)
        return self.loss_function(labels=labels, pooled_logits=logits, config=self.config)


class TupeForMultipleChoice(TupeWithSentenceHead):
    """A head that scores each choice: logits B×choices of inputs B×choices×T; labels B."""

    output_class = MultipleChoiceModelOutput

    def __init__(self, config: TupeConfig):
        super().__init__(config)
        self.classifier = ClassificationHead(config, 1)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        *,
        return_dict: bool | None = None,
        token_type_ids: Tensor | None = None,
        **more: Any,
    ) -> Any:
        """See `TupeWithHead.forward`; states and weights have B·choices rows."""
        inputs = (input_ids, attention_mask, inputs_embeds, token_type_ids)
        one = input_ids if inputs_embeds is None else inputs_embeds
        # Without either, `TupeModel` raises its error.
        choices = 1 if one is None else one.size(1)
        flat = (None if each is None else each.flatten(0, 1) for each in inputs)
        ids, mask, vectors, more["token_type_ids"] = flat
        out = super().forward(ids, mask, vectors, return_dict=True, **more)
        logits = out.logits.view(-1, choices)
        loss = None if labels is None else F.cross_entropy(logits, labels.to(logits.device))
        return self.output(out, return_dict, loss=loss, logits=logits)


class TupeForTokenClassification(TupeWithHead):
    """A linear layer on each token: logits B×T×classes; labels B×T, −100 where there is none.

    With `config.classifier_norm`, it is the head of `TupeForSequenceClassification` on each token.
    """

    output_class = TokenClassifierOutput
    accepts_loss_kwargs = True

    def __init__(self, config: TupeConfig):
        super().__init__(config)
        self.classifier = token_classifier(config, config.num_labels)
        self.dropout = nn.Dropout(0.0) if config.classifier_norm else classifier_dropout(config)
        self.post_init()

    def logits(self, x: Tensor, attention_mask: Tensor | None, read: Read | None) -> Tensor:
        return self.classifier(self.dropout(x))

    def loss(self, logits: Tensor, labels: Tensor, num_items_in_batch: Any) -> Tensor:
        return self.loss_function(
            logits, labels, self.config, num_items_in_batch=num_items_in_batch
        )


class TupeForQuestionAnswering(TupeWithHead):
    """The layer of `TupeForTokenClassification`, for the first and the last token of an answer."""

    output_class = QuestionAnsweringModelOutput

    def __init__(self, config: TupeConfig):
        super().__init__(config)
        self.qa_outputs = token_classifier(config, 2)
        self.post_init()

    def forward(  # type: ignore[override]
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        return_dict: bool | None = None,
        token_type_ids: Tensor | None = None,
        **more: Any,
    ) -> Any:
        """Logits B×T of first and last token; positions B each. See `TupeWithHead.forward`."""
        more["token_type_ids"] = token_type_ids
        out = self.tupe(input_ids, attention_mask, inputs_embeds, return_dict=True, **more)
        start, end = (x.contiguous() for x in self.qa_outputs(out.last_hidden_state).unbind(-1))
        loss = None
        if start_positions is not None and end_positions is not None:
            # B of positions B×1, which some data collators make.
            positions = (each.flatten() for each in (start_positions, end_positions))
            loss = self.loss_function(start, end, *positions)
        return self.output(out, return_dict, loss=loss, start_logits=start, end_logits=end)
