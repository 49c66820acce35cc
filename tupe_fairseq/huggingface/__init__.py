"""The models as classes of Hugging Face's transformers; importing this registers them.

    >>> import tupe_fairseq.huggingface
    >>> AutoModelForMaskedLM.from_pretrained("directory")

`directory` is what `scripts/convert_checkpoint.py --to huggingface` writes. Needs transformers and
safetensors (extra `hf`), and not fairseq.
"""

from ..base.extras import import_extra

import_extra("transformers", "hf")

import transformers  # noqa: E402

from .configuration import TupeConfig  # noqa: E402
from .modeling import TupeModel, TupePreTrainedModel  # noqa: E402
from .optimize import optimize  # noqa: E402
from .tasks import (  # noqa: E402
    TupeForMaskedLM,
    TupeForMultipleChoice,
    TupeForQuestionAnswering,
    TupeForSequenceClassification,
    TupeForTokenClassification,
)

transformers.AutoConfig.register(TupeConfig.model_type, TupeConfig, exist_ok=True)
transformers.AutoModel.register(TupeConfig, TupeModel, exist_ok=True)
for _model in (
    TupeForMaskedLM,
    TupeForMultipleChoice,
    TupeForQuestionAnswering,
    TupeForSequenceClassification,
    TupeForTokenClassification,
):
    # AutoModelForMaskedLM loads TupeForMaskedLM.
    _auto = getattr(transformers, _model.__name__.replace("Tupe", "AutoModel"))
    _auto.register(TupeConfig, _model, exist_ok=True)

__all__ = [
    "TupeConfig",
    "TupeForMaskedLM",
    "TupeForMultipleChoice",
    "TupeForQuestionAnswering",
    "TupeForSequenceClassification",
    "TupeForTokenClassification",
    "TupeModel",
    "TupePreTrainedModel",
    "optimize",
]
