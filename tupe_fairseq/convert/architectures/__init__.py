"""Models of transformers: a table for each kind, which reads both ways.

To read another kind, add a file with its table and enter it in `ARCHITECTURES`.
"""

from .base import Architecture
from .bert import BERT, CAMEMBERT, ROBERTA, XLM_ROBERTA
from .deberta import DEBERTA
from .modernbert import MODERNBERT
from .mpnet import MPNET
from .tupe import TUPE

ARCHITECTURES: tuple[Architecture, ...] = (
    ROBERTA,
    BERT,
    XLM_ROBERTA,
    CAMEMBERT,
    DEBERTA,
    MODERNBERT,
    MPNET,
    TUPE,
)

__all__ = ["ARCHITECTURES", "Architecture"]
