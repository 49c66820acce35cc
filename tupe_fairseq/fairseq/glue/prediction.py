"""`--criterion glue_prediction`: classification or regression with the metrics of GLUE.

fairseq's own `sentence_prediction` computes the same loss, but rounds its metrics to a tenth of a
percent, and does not support several ranks, because it cannot add their lists of predictions.
Here, each rank writes the predictions of a batch to its own row of a tensor. The sum over the
ranks holds all of them, and each metric is computed once from the predictions of the whole set.
"""

# No postponed annotations: fairseq reads the types of the fields to make flags.

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.distributed import utils as distributed
from fairseq.logging import metrics
from fairseq.logging.meters import MetersDict

from ...base.errors import ConfigurationError
from ..commands import ends_commands_in_one_line
from . import metrics as glue_metrics

#: Decimals of a percent in logs and results.
DECIMALS = 4
BINARY = {"f1": glue_metrics.f1, "mcc": glue_metrics.pearson}
REGRESSION = {"pearson": glue_metrics.pearson, "spearman": glue_metrics.spearman}


@dataclass
class GluePredictionConfig(FairseqDataclass):
    """The task `sentence_prediction` reads both settings by these names, too."""

    classification_head_name: str = field(
        default="sentence_classification_head",
        metadata={"help": "name of the classification head to train"},
    )
    regression_target: bool = field(
        default=False, metadata={"help": "labels are numbers, as in STS-B"}
    )


@register_criterion("glue_prediction", dataclass=GluePredictionConfig)
class GluePredictionCriterion(FairseqCriterion):
    """Cross-entropy, or squared error for regression.

    Logs `accuracy`; for the labels 0 and 1 also `f1` (of label 1) and `mcc`; for regression
    `pearson` and `spearman`. All are computed over a whole validation set; in training, only
    `accuracy` is logged.
    """

    def __init__(self, cfg: GluePredictionConfig, task: Any):
        super().__init__(task)
        self.head = cfg.classification_head_name
        self.regression = cfg.regression_target
        self.positive = None if self.regression else positive_class(task.label_dictionary)

    @ends_commands_in_one_line
    def forward(self, model: Any, sample: dict[str, Any], reduce: bool = True) -> tuple[Any, ...]:
        """The loss of a batch, summed over its B examples; B; and what `reduce_metrics` needs.

        Raises:
            ConfigurationError: the model has no such head.
        """
        if self.head not in getattr(model, "classification_heads", {}):
            raise ConfigurationError(
                f"--classification-head-name is {self.head!r}, but the model has no such head."
            )
        logits, _ = model(
            **sample["net_input"], features_only=True, classification_head_name=self.head
        )
        targets = model.get_targets(sample, [logits]).view(-1)
        if self.regression:
            predictions = logits.view(-1).float()
            targets = targets.float()
            loss = F.mse_loss(predictions, targets, reduction="sum")
            predictions = predictions.detach()
        else:
            predictions = logits.argmax(dim=1)
            log_probabilities = F.log_softmax(logits, dim=-1, dtype=torch.float32)
            loss = F.nll_loss(log_probabilities, targets, reduction="sum")
        count = targets.numel()
        log = {
            "loss": loss.detach(),
            "ntokens": sample["ntokens"],
            "nsentences": count,
            "sample_size": count,
        }
        if not self.regression:
            log["correct"] = (predictions == targets).sum()
        if not model.training:
            log |= self._predictions(predictions, targets)
        return loss, count, log

    def _predictions(self, predictions: torch.Tensor, targets: torch.Tensor) -> dict[str, Any]:
        """The values that the metrics compare (B each): numbers, or whether the label is 1."""
        if self.regression:
            return {"examples": side_by_side(predictions, targets)}
        if self.positive is None:
            return {}
        return {"examples": side_by_side(predictions == self.positive, targets == self.positive)}

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        """Log loss and accuracy of a batch, and the metrics of all batches of the set so far."""
        count = int(sum(log["sample_size"] for log in logging_outputs))
        regression = "correct" not in logging_outputs[0]
        loss = sum(float(log["loss"]) for log in logging_outputs) / count
        # fairseq logs cross-entropy in bits.
        metrics.log_scalar("loss", loss if regression else loss / math.log(2), count, round=4)
        if not regression:
            correct = sum(int(log["correct"]) for log in logging_outputs)
            metrics.log_scalar("accuracy", 100 * correct / count, count, round=DECIMALS)
        if "examples" not in logging_outputs[0]:
            return
        # fairseq does not print meters whose names begin with an underscore.
        metrics.log_custom(Collected, "_examples", [log["examples"] for log in logging_outputs])
        for name, function in (REGRESSION if regression else BINARY).items():
            metrics.log_derived(name, over_the_set(function))

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """True: ranks add them up; fairseq's other method needs CUDA."""
        return True


def side_by_side(predicted: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
    """Arrange the examples of this rank (B each) so that the sum over ranks holds all examples.

    All ranks must call it at once.

    Returns:
        R×M×3 in float64 for R ranks and at most M examples per batch. The row of this rank holds
        (1, prediction, truth) for each of its examples; all other entries are 0.
    """
    examples = torch.stack([torch.ones_like(true), predicted, true], dim=1).double()
    group = distributed.get_data_parallel_group()
    ranks = distributed.get_world_size(group)
    if ranks == 1:
        return examples[None]
    most = torch.tensor(len(examples), device=examples.device)
    distributed.all_reduce(most, group, op="max")
    rows = examples.new_zeros(ranks, int(most), 3)
    rows[distributed.get_rank(group), : len(examples)] = examples
    return rows


# fairseq restores saved meters by the names of its own classes, so another class would break
# resuming; derived meters are not saved. If fairseq removes this base class, keep the examples in
# the function that `metrics.log_derived` gets.
class Collected(MetersDict._DerivedMeter):
    """Collects the examples of a set."""

    def __init__(self) -> None:
        super().__init__(fn=None)
        self.reset()

    def reset(self) -> None:
        self.parts: list[torch.Tensor] = []

    def update(self, parts: list[torch.Tensor]) -> None:
        """Add the results of `side_by_side`, each summed over the ranks."""
        self.parts += [part[part[..., 0] == 1].cpu() for part in parts]

    def columns(self) -> tuple[np.ndarray, np.ndarray]:
        """Predictions and truths of all examples so far, N each."""
        _, predicted, true = torch.cat(self.parts).numpy().T
        return predicted, true


def over_the_set(function: Callable[..., float]) -> Callable[[Any], float]:
    """A metric over all examples collected so far."""

    def derived(meters: Any) -> float:
        return round(function(*meters["_examples"].columns()), DECIMALS)

    return derived


def positive_class(labels: Any) -> int | None:
    """The index of the output for label 1, if the labels are 0 and 1 in either order."""
    words = {labels[i]: i - labels.nspecial for i in range(labels.nspecial, len(labels))}
    return words["1"] if {"0", "1"} <= words.keys() and "2" not in words else None
