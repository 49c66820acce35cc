"""TUPE and other position encodings as a fairseq plugin: `--user-dir tupe_fairseq`.

Where fairseq is installed, this registers models and criterions with it: when this package is
imported or, if fairseq is imported later, then. The standalone encoder needs torch alone, and
`tupe_fairseq.huggingface` transformers too; neither imports fairseq.

Glossary, one word for one thing in code, messages and documents:
    token        an item of a sequence; its id is an index into the dictionary
    sequence     the tokens of one row of a batch; "sentence" only in names of fairseq's
    padding      cells of a batch without a token; `padding_mask` is True there
    encoding     a `PositionEncoding`: how positions enter the model
    score        query·key correlation before the softmax; weights are those after it
    positional term  the part of a score that depends on positions alone (`PositionalScore`);
                 a bias where it is a table by distance
    layer terms  what an encoding adds in one layer, depending on content (`LayerTerms`)
    window       the largest distance at which tokens attend to each other
    backend      a way to compute attention; `auto` selects one
    kernel       compiled code for one operation, in C or Triton
    untied [CLS] position 0 holds [CLS], whose positional scores are replaced by learned values
    architecture a named preset of model arguments (`--arch`)
    checkpoint   a file of fairseq's; a directory holds one with its dictionary and tokenizer
    standalone   TUPE without fairseq

Class names begin with Tupe; TUPEConfig, TUPEEncoder and TUPEMaskedLM keep their older spelling.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from . import commands
from .after_import import after_import
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

#: Classes that need fairseq, and the files that register them with it.
_WITH_FAIRSEQ = {
    "GluePredictionCriterion": "glue",
    "TupeRobertaModel": "models.tupe_roberta",
    "TupeTransformerModel": "models.tupe_transformer",
    "TupeTransformerLM": "models.tupe_transformer_lm",
}


def _register() -> None:
    """Register everything with fairseq, which is imported."""
    for name in (*_WITH_FAIRSEQ.values(), "optimizer"):
        import_module(f".{name}", __name__)


def __getattr__(name: str) -> Any:
    """Import a class that needs fairseq where it is first asked for."""
    if name not in _WITH_FAIRSEQ:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_WITH_FAIRSEQ[name]}", __name__), name)


if find_spec("fairseq") is not None:
    __all__ += sorted(_WITH_FAIRSEQ)
    if commands.current():
        _register()
    else:
        after_import("fairseq", _register)
