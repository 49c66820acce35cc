"""Models of transformers, one file for each `model_type` of config.json."""

from .base import Architecture
from .bert import Bert
from .roberta import Roberta
from .tupe import Tupe

#: By model_type. To read another, add a file with a subclass of `Architecture` and enter it here.
ARCHITECTURES: dict[str, Architecture] = {
    each.model_type: each for each in (Roberta(), Bert(), Tupe())
}
