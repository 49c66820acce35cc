"""`--criterion glue_prediction`: classification or regression, measured as GLUE does.

fairseq's own `sentence_prediction` trains the same, but rounds its metrics to a tenth of a
percent, and with several ranks ends in an error where it would add up their lists. Here each rank
hands on the predictions of a batch in a place of its own, so that their sum holds them side by
side, and every metric is computed once from the whole set's.
"""

# Without postponed annotations, since fairseq makes flags of the types themselves.

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

from ..commands import ends_commands_in_one_line
from ..errors import UsageError
from . import metrics as glue_metrics

#: Decimals of a percent in logs and results.
DECIMALS = 4
BINARY = {"f1": glue_metrics.f1, "mcc": glue_metrics.matthews}
REGRESSION = {"pearson": glue_metrics.pearson, "spearman": glue_metrics.spearman}


@dataclass
class GluePredictionConfig(FairseqDataclass):
    """The task `sentence_prediction` reads both settings too, by these names."""

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
    `pearson` and `spearman`. All but the accuracy of training are of a whole validation set.
    """

    def __init__(self, cfg: GluePredictionConfig, task: Any):
        super().__init__(task)
        self.head = cfg.classification_head_name
        self.regression = cfg.regression_target
        self.positive = None if self.regression else positive_class(task.label_dictionary)

    @ends_commands_in_one_line
    def forward(self, model, sample, reduce=True):
        """Loss of a batch, summed over its B examples; B; what `reduce_metrics` needs.

        Raises:
            UsageError: the model has no such head.
        """
        if self.head not in getattr(model, "classification_heads", {}):
            raise UsageError(f"--classification-head-name is {self.head!r}: the model has none.")
        logits, _ = model(
            **sample["net_input"], features_only=True, classification_head_name=self.head
        )
        targets = model.get_targets(sample, [logits]).view(-1)
        if self.regression:
            predictions, targets = logits.view(-1).float(), targets.float()
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
            log |= self._handed_on(predictions, targets)
        return loss, count, log

    def _handed_on(self, predictions: torch.Tensor, targets: torch.Tensor) -> dict[str, Any]:
        """What the metrics are of, B each: numbers, or whether an example is of label 1."""
        if self.regression:
            return {"examples": side_by_side(predictions, targets)}
        if self.positive is None:
            return {}
        return {"examples": side_by_side(predictions == self.positive, targets == self.positive)}

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        """Log a batch's loss and accuracy, and the metrics of all batches of the set so far."""
        count = int(sum(log["sample_size"] for log in logging_outputs))
        regression = "correct" not in logging_outputs[0]
        loss = sum(float(log["loss"]) for log in logging_outputs) / count
        # Cross-entropy in bits, as fairseq logs it everywhere.
        metrics.log_scalar("loss", loss if regression else loss / math.log(2), count, round=4)
        if not regression:
            correct = sum(int(log["correct"]) for log in logging_outputs)
            metrics.log_scalar("accuracy", 100 * correct / count, count, round=DECIMALS)
        if "examples" not in logging_outputs[0]:
            return
        # fairseq prints no meter whose name begins with an underscore.
        metrics.log_custom(Collected, "_examples", [log["examples"] for log in logging_outputs])
        for name, function in (REGRESSION if regression else BINARY).items():
            metrics.log_derived(name, over_the_set(function))

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """Whether ranks may add them up; fairseq's other way needs CUDA."""
        return True


def side_by_side(predicted: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
    """What a rank logs of its batch (B each), so that the sum over the ranks holds all examples.

    All ranks must call it at once.

    Returns:
        R×M×3 in float64 for R ranks and at most M examples a batch: the row of this rank holds 1,
        the prediction and the truth of each of its examples; all else is 0.
    """
    own = torch.stack([torch.ones_like(true), predicted, true], dim=1).double()
    group = distributed.get_data_parallel_group()
    ranks = distributed.get_world_size(group)
    if ranks == 1:
        return own[None]
    most = torch.tensor(len(own), device=own.device)
    distributed.all_reduce(most, group, op="max")
    rows = own.new_zeros(ranks, int(most), 3)
    rows[distributed.get_rank(group), : len(own)] = own
    return rows


class Collected(MetersDict._DerivedMeter):
    """Keeps all it is given.

    A derived meter, since others go into checkpoints with the name of their class, by which
    fairseq finds only its own when it resumes.
    """

    def __init__(self):
        super().__init__(fn=None)
        self.reset()

    def reset(self):
        self.parts = []

    def update(self, parts: list[torch.Tensor]) -> None:
        """Take what `side_by_side` gives, summed over the ranks."""
        self.parts += [part[part[..., 0] == 1].cpu() for part in parts]

    def columns(self) -> tuple[np.ndarray, np.ndarray]:
        """Predictions and truths of all examples so far, N each."""
        _, predicted, true = torch.cat(self.parts).numpy().T
        return predicted, true


def over_the_set(function: Callable[..., float]) -> Callable[[Any], float]:
    """A metric of all that is collected so far."""

    def derived(meters: Any) -> float:
        return round(function(*meters["_examples"].columns()), DECIMALS)

    return derived


def positive_class(labels: Any) -> int | None:
    """The output that stands for label 1, where the labels are 0 and 1 in either order."""
    words = {labels[i]: i - labels.nspecial for i in range(labels.nspecial, len(labels))}
    return words["1"] if {"0", "1"} <= words.keys() and "2" not in words else None
