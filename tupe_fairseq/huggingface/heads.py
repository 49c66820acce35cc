"""Heads of the models for transformers."""

from torch import Tensor, nn

from ..errors import ConfigurationError
from ..modules.activations import ACTIVATIONS
from .configuration import TupeConfig

#: Activations of the head for sequence classification.
CLASSIFIER_ACTIVATIONS = {**ACTIVATIONS, "linear": lambda x: x}


class MaskedLMHead(nn.Module):
    """RoBERTa's language modeling head: C -> C, activation, LayerNorm, then a logit per token."""

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
