"""Which Auto class of transformers stands for which model."""

import transformers

from . import tasks
from .causal_lm import TupeForCausalLM
from .configuration import TupeConfig
from .modeling import TupeModel

#: Name of the Auto class, and the model that it loads.
AUTO_CLASSES = {
    "AutoModel": TupeModel,
    "AutoModelForMaskedLM": tasks.TupeForMaskedLM,
    "AutoModelForCausalLM": TupeForCausalLM,
    "AutoModelForSequenceClassification": tasks.TupeForSequenceClassification,
    "AutoModelForTokenClassification": tasks.TupeForTokenClassification,
    "AutoModelForQuestionAnswering": tasks.TupeForQuestionAnswering,
    "AutoModelForMultipleChoice": tasks.TupeForMultipleChoice,
}


def register() -> None:
    """Make transformers' Auto classes know the models; a second call changes nothing."""
    transformers.AutoConfig.register(TupeConfig.model_type, TupeConfig, exist_ok=True)
    for name, model in AUTO_CLASSES.items():
        getattr(transformers, name).register(TupeConfig, model, exist_ok=True)
