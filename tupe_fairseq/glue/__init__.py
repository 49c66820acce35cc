"""The criterions fairseq knows by `--criterion`; importing this registers them."""

from .prediction import GluePredictionCriterion

__all__ = ["GluePredictionCriterion"]
