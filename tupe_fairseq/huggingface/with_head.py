"""The forward pass that models with a head share."""

from typing import Any, ClassVar

import torch  # noqa: F401  (torch.compile of torch 2.6 looks for this name)
from torch import Tensor

from .configuration import TupeConfig
from .modeling import TupeModel, TupePreTrainedModel
from .padding import Read, check_shape, for_each_row, visible


class TupeWithHead(TupePreTrainedModel):
    """`TupeModel` with a head; a subclass sets output_class, and defines `logits` and `loss`.

    Losses are those of transformers (`loss_function`).
    """

    #: Class of transformers for what `forward` returns.
    output_class: ClassVar[type]
    #: Whether Trainer passes num_items_in_batch to `forward`.
    accepts_loss_kwargs = False

    def __init__(self, config: TupeConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.tupe = TupeModel(config)

    def tokens_read(
        self, x: Tensor, attention_mask: Tensor | None, labels: Tensor | None
    ) -> Read | None:
        """Rows and columns of the tokens that `logits` reads, M each; None: all.

        `x` are ids, B×T, or vectors, B×T×C; the mask is B×T; labels are as the class takes them.
        """
        return None

    def check_labels(self, labels: Tensor, batch: int, length: int) -> None:
        """Raise a DataError for labels of another shape than the class takes; here B×T."""
        check_shape("labels", labels, (batch, length))

    def logits(self, x: Tensor, attention_mask: Tensor | None, read: Read | None) -> Tensor:
        """Outputs of the head for last hidden states, B×T×C, or M×C of the tokens read."""
        raise NotImplementedError

    def loss(self, logits: Tensor, labels: Tensor, num_items_in_batch: Any) -> Tensor:
        """The loss of the logits; each class says what labels it takes."""
        raise NotImplementedError

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        *,
        return_dict: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        token_type_ids: Tensor | None = None,
        **more: Any,
    ) -> Any:
        """Logits, and their loss if there are labels.

        The other arguments, with ``more`` (output_attentions, output_hidden_states), and outputs
        are those of `TupeModel.forward`. If num_items_in_batch, the number of labels in all
        batches of an update, is given, the loss is the sum over the labels of this batch, divided
        by it.
        """
        if attention_mask is None:
            attention_mask = visible(input_ids, self.config.pad_token_id)
        x = inputs_embeds if input_ids is None else input_ids
        attention_mask = for_each_row(attention_mask, x)
        if x is not None and labels is not None:
            self.check_labels(labels, *x.shape[:2])
        read = None if x is None else self.tokens_read(x, attention_mask, labels)
        out = self.tupe(
            input_ids,
            attention_mask,
            inputs_embeds,
            return_dict=True,
            token_type_ids=token_type_ids,
            read=read,
            **more,
        )
        logits = self.logits(out.last_hidden_state, attention_mask, read)
        loss = None if labels is None else self.loss(logits, labels, num_items_in_batch)
        return self.output(out, return_dict, loss=loss, logits=logits)

    def output(self, out: Any, return_dict: bool | None, **heads: Any) -> Any:
        """What `forward` returns, from the output of `TupeModel` and the head's own."""
        states = out.hidden_states
        weights = out.attentions
        output = self.output_class(**heads, hidden_states=states, attentions=weights)
        return self.returned(output, return_dict)
