"""BERT and the encoders that have its layers, under the names that they have in transformers."""

import transformers

from .optimized import Optimized


class BertModel(Optimized, transformers.BertModel):
    """transformers' BertModel."""


class RobertaModel(Optimized, transformers.RobertaModel):
    """transformers' RobertaModel."""


class XLMRobertaModel(Optimized, transformers.XLMRobertaModel):
    """transformers' XLMRobertaModel."""


class CamembertModel(Optimized, transformers.CamembertModel):
    """transformers' CamembertModel."""
