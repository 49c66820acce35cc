"""Encoders with a head, by the names and interfaces of transformers."""

from typing import ClassVar

from torch import Tensor, nn
from transformers.modeling_outputs import (
    MaskedLMOutput,
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)

from .configuration import TupeConfig
from .heads import (
    ClassificationHead,
    MaskedWordHead,
    classifier_dropout,
    sequence_loss,
    span_loss,
    token_loss,
)
from .modeling import WORDS, TupeModel, TupePreTrainedModel
from .padding import first_tokens, visible


class TupeForMaskedLM(TupePreTrainedModel):
    """`TupeModel` with RoBERTa's head for masked words."""

    _tied_weights_keys: ClassVar = {"lm_head.decoder.weight": WORDS}

    def __init__(self, config: TupeConfig):
        super().__init__(config)
        self.tupe = TupeModel(config)
        self.lm_head = MaskedWordHead(config)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head.decoder

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        self.lm_head.decoder = new_embeddings

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> MaskedLMOutput | tuple[Tensor, ...]:
        """Logits B×T×V; labels B×T, −100 where there is none. See `TupeModel.forward`."""
        given = (input_ids, attention_mask, inputs_embeds)
        out = self.tupe(*given, output_attentions, output_hidden_states, return_dict=True)
        if attention_mask is None:
            attention_mask = visible(input_ids, self.config.pad_token_id)
        hidden = self.tupe.before_lm_head(out.last_hidden_state, attention_mask)
        logits = self.lm_head(hidden)
        output = MaskedLMOutput(
            loss=None if labels is None else token_loss(logits, labels),
            logits=logits,
            hidden_states=out.hidden_states,
            attentions=out.attentions,
        )
        return self.returned(output, return_dict)


class TupeForSequenceClassification(TupePreTrainedModel):
    """`TupeModel` with RoBERTa's head on the first token."""

    def __init__(self, config: TupeConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.tupe = TupeModel(config)
        self.classifier = ClassificationHead(config, config.num_labels)
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
    ) -> SequenceClassifierOutput | tuple[Tensor, ...]:
        """Logits B×classes; the loss follows `config.problem_type`. See `TupeModel.forward`."""
        given = (input_ids, attention_mask, inputs_embeds)
        out = self.tupe(*given, output_attentions, output_hidden_states, return_dict=True)
        if attention_mask is None:
            attention_mask = visible(input_ids, self.config.pad_token_id)
        logits = self.classifier(first_tokens(out.last_hidden_state, attention_mask))
        output = SequenceClassifierOutput(
            loss=None if labels is None else sequence_loss(logits, labels, self.config),
            logits=logits,
            hidden_states=out.hidden_states,
            attentions=out.attentions,
        )
        return self.returned(output, return_dict)


class TupeForMultipleChoice(TupePreTrainedModel):
    """`TupeModel` with a head that scores each choice."""

    def __init__(self, config: TupeConfig):
        super().__init__(config)
        self.tupe = TupeModel(config)
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
    ) -> MultipleChoiceModelOutput | tuple[Tensor, ...]:
        """Logits B×choices of inputs B×choices×T; labels B. See `TupeModel.forward`."""
        given = (input_ids, attention_mask, inputs_embeds)
        choices = next(each for each in (input_ids, inputs_embeds) if each is not None).size(1)
        rows = [None if each is None else each.flatten(0, 1) for each in given]
        out = self.tupe(*rows, output_attentions, output_hidden_states, return_dict=True)
        ids, mask, _ = rows
        mask = visible(ids, self.config.pad_token_id) if mask is None else mask
        logits = self.classifier(first_tokens(out.last_hidden_state, mask)).view(-1, choices)
        output = MultipleChoiceModelOutput(
            loss=None if labels is None else token_loss(logits[None], labels[None]),
            logits=logits,
            hidden_states=out.hidden_states,
            attentions=out.attentions,
        )
        return self.returned(output, return_dict)


class TupeForTokenClassification(TupePreTrainedModel):
    """`TupeModel` with dropout and a linear layer on each token."""

    def __init__(self, config: TupeConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.tupe = TupeModel(config)
        self.dropout = classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
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
    ) -> TokenClassifierOutput | tuple[Tensor, ...]:
        """Logits B×T×classes; labels B×T, −100 where there is none. See `TupeModel.forward`."""
        given = (input_ids, attention_mask, inputs_embeds)
        out = self.tupe(*given, output_attentions, output_hidden_states, return_dict=True)
        logits = self.classifier(self.dropout(out.last_hidden_state))
        output = TokenClassifierOutput(
            loss=None if labels is None else token_loss(logits, labels),
            logits=logits,
            hidden_states=out.hidden_states,
            attentions=out.attentions,
        )
        return self.returned(output, return_dict)


class TupeForQuestionAnswering(TupePreTrainedModel):
    """`TupeModel` with a linear layer for the first and the last token of an answer."""

    def __init__(self, config: TupeConfig):
        super().__init__(config)
        self.tupe = TupeModel(config)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> QuestionAnsweringModelOutput | tuple[Tensor, ...]:
        """Logits B×T of first and last token; positions B each. See `TupeModel.forward`."""
        given = (input_ids, attention_mask, inputs_embeds)
        out = self.tupe(*given, output_attentions, output_hidden_states, return_dict=True)
        start, end = self.qa_outputs(out.last_hidden_state).unbind(-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            loss = span_loss(start, end, start_positions, end_positions)
        output = QuestionAnsweringModelOutput(
            loss=loss,
            start_logits=start.contiguous(),
            end_logits=end.contiguous(),
            hidden_states=out.hidden_states,
            attentions=out.attentions,
        )
        return self.returned(output, return_dict)
