"""TUPE and other position encodings as a fairseq plugin: `--user-dir tupe_fairseq`.

Importing this package registers models and criterions with fairseq where fairseq is installed.
`TUPEEncoder` and `tupe_fairseq.huggingface` need no fairseq.

Glossary, one word for one thing in code, messages and documents:
    token        an item of a sequence; its id is an index into the dictionary
    sequence     the tokens of one row of a batch; "sentence" only in names of fairseq's
    padding      cells of a batch without a token; `padding_mask` is True there
    encoding     a `PositionEncoding`: how positions enter the model
    score        query·key correlation before the softmax; weights are those after it
    positional term  the part of a score that depends on positions alone (`AttentionBias`);
                 a bias where it is a table by distance
    layer terms  what an encoding adds in one layer, depending on content (`LayerTerms`)
    window       the largest distance at which tokens attend to each other
    backend      a way to compute attention; `auto` selects one
    kernel       compiled code for one operation, in torch or C
    untied [CLS] position 0 holds [CLS], whose positional scores are replaced by learned values
    architecture a named preset of model arguments (`--arch`)
    checkpoint   a file of fairseq's; a directory holds one with its dictionary and tokenizer

Class names begin with Tupe; TUPEConfig and TUPEEncoder keep their older spelling.
"""

import importlib.util
import logging
import warnings

from .attention import TupeMultiheadAttention
from .base.errors import BackendError, CheckpointError, ConfigurationError, DataError, UsageError
from .position import PositionEncoding, Shape, build_position_encoding, register_position_encoding
from .transformer.tupe_encoder import TUPEConfig, TUPEEncoder

__version__ = "0.4.0"

__all__ = [
    "BackendError",
    "CheckpointError",
    "ConfigurationError",
    "DataError",
    "PositionEncoding",
    "Shape",
    "TUPEConfig",
    "TUPEEncoder",
    "TupeMultiheadAttention",
    "UsageError",
    "build_position_encoding",
    "register_position_encoding",
]

if importlib.util.find_spec("fairseq") is not None:
    # fairseq calls logging.basicConfig, which would turn on the debugging output of all libraries.
    # It does nothing where there is a handler.
    _handler = logging.NullHandler()
    logging.root.addHandler(_handler)
    with warnings.catch_warnings():
        # fairseq uses it when it is imported, and torch 2.15 warns of it.
        warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated")
        from .fairseq.glue import GluePredictionCriterion
        from .fairseq.models.tupe_roberta import TupeRobertaModel
        from .fairseq.models.tupe_transformer import TupeTransformerModel
        from .fairseq.models.tupe_transformer_lm import TupeTransformerLM
        from .fairseq.optimizer import FusedAdam as _FusedAdam  # noqa: F401

    logging.root.removeHandler(_handler)

    __all__ += [
        "GluePredictionCriterion",
        "TupeRobertaModel",
        "TupeTransformerLM",
        "TupeTransformerModel",
    ]
