"""The criterion `glue_prediction` for fairseq; importing this registers it."""

from .prediction import GluePredictionCriterion

__all__ = ["GluePredictionCriterion"]
