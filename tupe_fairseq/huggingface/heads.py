"""Heads and losses of the models for transformers."""

import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import ConfigurationError
from ..modules.activations import ACTIVATIONS
from .configuration import TupeConfig

#: Activations of the head for sequence classification.
CLASSIFIER_ACTIVATIONS = {**ACTIVATIONS, "linear": lambda x: x}


class MaskedWordHead(nn.Module):
    """RoBERTa's head for masked words: C -> C, activation, LayerNorm, then a logit per word."""

    def __init__(self, config: TupeConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.layer_norm = nn.LayerNorm(config.hidden_size)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)
        self.activation_fn = ACTIVATIONS[config.hidden_act]

    def forward(self, hidden: Tensor) -> Tensor:
        """B×T×C -> B×T×V."""
        return self.decoder(self.layer_norm(self.activation_fn(self.dense(hidden))))


class ClassificationHead(nn.Module):
    """RoBERTa's head for sentences: dropout, C -> C, activation, dropout, then the classes.

    Raises:
        ConfigurationError: unknown classifier_act.
    """

    def __init__(self, config: TupeConfig, num_labels: int):
        super().__init__()
        if config.classifier_act not in CLASSIFIER_ACTIVATIONS:
            raise ConfigurationError(
                f"classifier_act is {config.classifier_act!r}, but must be one of: "
                f"{', '.join(CLASSIFIER_ACTIVATIONS)}."
            )
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = classifier_dropout(config)
        self.out_proj = nn.Linear(config.hidden_size, num_labels)
        self.activation_fn = CLASSIFIER_ACTIVATIONS[config.classifier_act]

    def forward(self, hidden: Tensor) -> Tensor:
        """Vectors of [CLS], B×C -> B×classes."""
        x = self.activation_fn(self.dense(self.dropout(hidden)))
        return self.out_proj(self.dropout(x))


def classifier_dropout(config: TupeConfig) -> nn.Dropout:
    """The dropout of classification heads."""
    given = config.classifier_dropout
    return nn.Dropout(config.hidden_dropout_prob if given is None else given)


def token_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy over the tokens whose label is not −100: B×T×V and B×T."""
    return F.cross_entropy(logits.flatten(0, 1), labels.to(logits.device).flatten())


def next_token_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """As `token_loss`, of the token that follows each."""
    return token_loss(logits[:, :-1], labels[:, 1:])


def sequence_loss(logits: Tensor, labels: Tensor, config: TupeConfig) -> Tensor:
    """The loss that `config.problem_type` names; where it is None, it follows from the labels.

    Args:
        logits: B×classes.
        labels: B, or B×classes of 0 and 1 for several labels each.
        config: its problem_type is set.

    Raises:
        ConfigurationError: unknown problem_type.
    """
    labels, classes = labels.to(logits.device), logits.size(-1)
    if config.problem_type is None:
        several = "single_label" if not labels.is_floating_point() else "multi_label"
        config.problem_type = "regression" if classes == 1 else f"{several}_classification"
    if config.problem_type == "regression":
        return F.mse_loss(logits.view(labels.shape), labels.to(logits.dtype))
    if config.problem_type == "single_label_classification":
        return F.cross_entropy(logits, labels.view(-1))
    if config.problem_type == "multi_label_classification":
        return F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))
    raise ConfigurationError(
        f"problem_type is {config.problem_type!r}, but must be regression, "
        "single_label_classification or multi_label_classification."
    )


def span_loss(start: Tensor, end: Tensor, first: Tensor, last: Tensor) -> Tensor:
    """Mean cross-entropy of the first and the last token of an answer.

    Args:
        start: logits of the first token, B×T.
        end: logits of the last token, B×T.
        first: B; positions outside of the text are not counted.
        last: as `first`.
    """
    length = start.size(1)
    losses = [
        F.cross_entropy(
            logits, _first_column(target).to(logits.device).clamp(0, length), ignore_index=length
        )
        for logits, target in ((start, first), (end, last))
    ]
    return (losses[0] + losses[1]) / 2


def _first_column(target: Tensor) -> Tensor:
    """B of a tensor B or B×1, which some data collators make."""
    return target.squeeze(-1) if target.dim() > 1 else target
