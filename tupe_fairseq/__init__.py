"""TUPE and the other position encodings as a fairseq plugin: `--user-dir tupe_fairseq`.

Importing this package registers models and criterions with fairseq where fairseq is installed. The
standalone encoder needs torch alone.
"""

import importlib.util

from .attention import TupeMultiheadAttention
from .errors import BackendError, CheckpointError, ConfigurationError, DataError, UsageError
from .position import PositionEncoding, Shape, build_position_encoding, register_position_encoding
from .standalone.encoder import TUPEConfig, TUPEEncoder
from .standalone.masked_lm import TUPEMaskedLM

__version__ = "0.1.0"

__all__ = [
    "BackendError",
    "CheckpointError",
    "ConfigurationError",
    "DataError",
    "PositionEncoding",
    "Shape",
    "TUPEConfig",
    "TUPEEncoder",
    "TUPEMaskedLM",
    "TupeMultiheadAttention",
    "UsageError",
    "build_position_encoding",
    "register_position_encoding",
]

if importlib.util.find_spec("fairseq") is not None:
    from .glue import GluePredictionCriterion
    from .models.tupe_roberta import TupeRobertaModel
    from .models.tupe_transformer import TupeTransformerModel
    from .models.tupe_transformer_lm import TupeTransformerLM

    __all__ += [
        "GluePredictionCriterion",
        "TupeRobertaModel",
        "TupeTransformerLM",
        "TupeTransformerModel",
    ]
