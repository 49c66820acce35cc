"""The criterions fairseq knows by `--criterion`; importing this registers them."""

from .glue_prediction import GluePredictionCriterion

__all__ = ["GluePredictionCriterion"]
