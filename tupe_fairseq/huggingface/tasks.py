"""Encoders with a head, by the names and interfaces of transformers."""

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

from .configuration import TupeConfig
from .heads import ClassificationHead, MaskedLMHead, classifier_dropout
from .modeling import WORDS
from .padding import first_tokens
from .with_head import TupeWithHead


class TupeForMaskedLM(TupeWithHead):
    """RoBERTa's language modeling head: logits B×T×V; labels B×T, −100 where there is none."""

    output_class = MaskedLMOutput
    accepts_loss_kwargs = True
    _tied_weights_keys: ClassVar = {"lm_head.decoder.weight": WORDS}

    def __init__(self, config: TupeConfig):
        super().__init__(config)
        self.lm_head = MaskedLMHead(config)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head.decoder

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        self.lm_head.decoder = new_embeddings

    def logits(self, x: Tensor, attention_mask: Tensor | None) -> Tensor:
        return self.lm_head(self.tupe.before_lm_head(x, attention_mask))

    def loss(self, logits: Tensor, labels: Tensor, num_items_in_batch: Any) -> Tensor:
        count, size = num_items_in_batch, self.config.vocab_size
        return self.loss_function(logits, labels, size, num_items_in_batch=count)


class TupeForSequenceClassification(TupeWithHead):
    """RoBERTa's head on the first token: logits B×classes.

    `config.problem_type` names the loss. Labels are B, or B×classes of 0 and 1 for several each.
    """

    output_class = SequenceClassifierOutput

    def __init__(self, config: TupeConfig):
        super().__init__(config)
        self.classifier = ClassificationHead(config, config.num_labels)
        self.post_init()

    def logits(self, x: Tensor, attention_mask: Tensor | None) -> Tensor:
        return self.classifier(first_tokens(x, attention_mask))

    def loss(self, logits: Tensor, labels: Tensor, num_items_in_batch: Any) -> Tensor:
        kind = self.config.problem_type
        one_score = kind is None and self.num_labels == 1
        if one_score or kind in ("regression", "multi_label_classification"):
            labels = labels.to(logits.dtype)
        return self.loss_function(labels=labels, pooled_logits=logits, config=self.config)


class TupeForMultipleChoice(TupeWithHead):
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
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """See `TupeWithHead.forward`; states and weights have B·choices rows."""
        given = (input_ids, attention_mask, inputs_embeds)
        choices = next(each for each in (input_ids, inputs_embeds) if each is not None).size(1)
        ids, mask, vectors = (None if each is None else each.flatten(0, 1) for each in given)
        wanted = (output_attentions, output_hidden_states)
        out = super().forward(ids, mask, vectors, None, *wanted, return_dict=True)
        logits = out.logits.view(-1, choices)
        loss = None if labels is None else F.cross_entropy(logits, labels.to(logits.device))
        return self.output(out, return_dict, loss=loss, logits=logits)

    def logits(self, x: Tensor, attention_mask: Tensor | None) -> Tensor:
        return self.classifier(first_tokens(x, attention_mask))


class TupeForTokenClassification(TupeWithHead):
    """A linear layer on each token: logits B×T×classes; labels B×T, −100 where there is none."""

    output_class = TokenClassifierOutput
    accepts_loss_kwargs = True

    def __init__(self, config: TupeConfig):
        super().__init__(config)
        self.dropout = classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def logits(self, x: Tensor, attention_mask: Tensor | None) -> Tensor:
        return self.classifier(self.dropout(x))

    def loss(self, logits: Tensor, labels: Tensor, num_items_in_batch: Any) -> Tensor:
        count, config = num_items_in_batch, self.config
        return self.loss_function(logits, labels, config, num_items_in_batch=count)


class TupeForQuestionAnswering(TupeWithHead):
    """A linear layer for the first and the last token of an answer."""

    output_class = QuestionAnsweringModelOutput

    def __init__(self, config: TupeConfig):
        super().__init__(config)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    def forward(  # type: ignore[override]
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> Any:
        """Logits B×T of first and last token; positions B each. See `TupeModel.forward`."""
        given = (input_ids, attention_mask, inputs_embeds)
        out = self.tupe(*given, output_attentions, output_hidden_states, return_dict=True)
        start, end = (x.contiguous() for x in self.qa_outputs(out.last_hidden_state).unbind(-1))
        loss = None
        if start_positions is not None and end_positions is not None:
            # B of positions B×1, which some data collators make.
            positions = (each.flatten() for each in (start_positions, end_positions))
            loss = self.loss_function(start, end, *positions)
        return self.output(out, return_dict, loss=loss, start_logits=start, end_logits=end)
