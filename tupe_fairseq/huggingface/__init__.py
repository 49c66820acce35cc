"""The models as classes of Hugging Face's transformers; importing this registers them.

    >>> import tupe_fairseq.huggingface
    >>> AutoModelForMaskedLM.from_pretrained("directory")

`directory` is what `scripts/convert_checkpoint.py --to huggingface` writes. Needs transformers and
safetensors (extra `hf`), and not fairseq.
"""

from ..extras import import_extra

import_extra("transformers", "hf")

from .causal_lm import TupeForCausalLM  # noqa: E402
from .configuration import TupeConfig  # noqa: E402
from .modeling import TupeModel, TupePreTrainedModel  # noqa: E402
from .registration import register  # noqa: E402
from .tasks import (  # noqa: E402
    TupeForMaskedLM,
    TupeForMultipleChoice,
    TupeForQuestionAnswering,
    TupeForSequenceClassification,
    TupeForTokenClassification,
)

register()

__all__ = [
    "TupeConfig",
    "TupeForCausalLM",
    "TupeForMaskedLM",
    "TupeForMultipleChoice",
    "TupeForQuestionAnswering",
    "TupeForSequenceClassification",
    "TupeForTokenClassification",
    "TupeModel",
    "TupePreTrainedModel",
]
