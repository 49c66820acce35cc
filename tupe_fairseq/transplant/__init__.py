"""Another position encoding for a released encoder, by distillation from the original.

    >>> from tupe_fairseq.transplant import transplant
    >>> model = transplant(SentenceTransformer("all-MiniLM-L6-v2"), texts, "tupe_r")

`distil` does the same for a model that is read from a directory (`examples/transplant`). Needs
transformers (extra `hf`), and not fairseq.
"""

from .distillation import Distilled, distil
from .models import transplant
from .recipe import Recipe

__all__ = ["Distilled", "Recipe", "distil", "transplant"]
