"""What differs between the kinds of models of transformers that are converted."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from ..dictionaries import check_size, read_dictionary
from ..families import CAUSAL, MASKED, Family
from ..keys import Table
from ..models import Converted
from ..vocabularies import Vocabulary

#: Contents of config.json, and parameters by their names in transformers.
Written = tuple[dict[str, Any], dict[str, Tensor]]


@dataclass
class Source:
    """A directory of transformers while it is read.

    Attributes:
        folder: the directory.
        config: contents of config.json; after `Architecture.read`, settings as in `TupeConfig`.
        parameters: by their names there.
        dictionary: path of dict.txt, if given.
        learned: whether the positions are kept; False for a warm start.
        vocabulary: the dictionary and tokenizer, after `Architecture.read`.
        notes: what the user should know.
        not_comparable: why outputs differ here and there, if they do.
    """

    folder: Path
    config: dict[str, Any]
    parameters: dict[str, Tensor]
    dictionary: str | Path | None = None
    learned: bool = True
    vocabulary: Vocabulary = field(default_factory=lambda: Vocabulary([]))
    notes: list[str] = field(default_factory=list)
    not_comparable: str = ""

    @property
    def family(self) -> Family:
        """Masked language model or language model."""
        return CAUSAL if self.config.get("is_decoder") else MASKED


class Architecture:
    """Models with one `model_type`; those with the model_type of `TupeConfig` can be any model.

    Attributes:
        model_type: in config.json; also the first part of the names of parameters below a head.
        embed_tokens: name of the token embeddings.
        matrices: names of the embeddings, without which nothing can be read.
    """

    model_type: str
    embed_tokens: str
    matrices: tuple[str, ...]

    def read(self, source: Source) -> None:
        """Read the dictionary, and make settings and parameters those of `TupeConfig`'s models.

        Raises:
            UsageError: the dictionary does not fit, or a setting has no counterpart.
        """
        path = Path(source.dictionary or source.folder / "dict.txt")
        source.vocabulary = Vocabulary(read_dictionary(path))
        rows, adds_mask = len(source.parameters[self.embed_tokens]), source.family.adds_mask
        check_size(source.vocabulary.entries, rows, path, adds_mask)

    def rules(self, family: Family, head: str | None) -> Table:
        """Names of parameters; `head` is the name of the classification head here."""
        raise NotImplementedError

    def write(self, converted: Converted, head: str | None) -> Written:
        """The model, with the classification `head` alone if there is one.

        Raises:
            UsageError: the model has no counterpart.
        """
        raise NotImplementedError
