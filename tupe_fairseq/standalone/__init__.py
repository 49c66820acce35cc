"""TUPE without fairseq: an encoder over vectors, and a masked language model over ids."""

from .encoder import ACTIVATIONS, TUPEConfig, TUPEEncoder
from .masked_lm import TUPEMaskedLM

__all__ = ["ACTIVATIONS", "TUPEConfig", "TUPEEncoder", "TUPEMaskedLM"]
