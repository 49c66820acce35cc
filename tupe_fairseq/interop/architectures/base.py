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
        notes: what the user should know.
        not_comparable: why outputs differ here and there, if they do.
    """

    folder: Path
    config: dict[str, Any]
    parameters: dict[str, Tensor]
    dictionary: str | Path | None = None
    learned: bool = True
    notes: list[str] = field(default_factory=list)
    not_comparable: str = ""

    @property
    def family(self) -> Family:
        """Masked language model or language model."""
        return CAUSAL if self.config.get("is_decoder") else MASKED


class Architecture:
    """Models with one `model_type`; `read` suits those whose settings are `TupeConfig`'s.

    Attributes:
        model_type: in config.json; also the first part of the names of parameters below a head.
        embed_tokens: name of the token embeddings.
        matrices: names of the embeddings, without which nothing can be read.
    """

    model_type: str
    embed_tokens: str
    matrices: tuple[str, ...]

    def read(self, source: Source) -> Vocabulary:
        """The dictionary; settings and parameters become those of `TupeConfig`'s models, in place.

        Raises:
            UsageError: the dictionary does not fit, or a setting has no counterpart.
        """
        path = Path(source.dictionary or source.folder / "dict.txt")
        entries, rows = read_dictionary(path), len(source.parameters[self.embed_tokens])
        check_size(entries, rows, path, source.family.adds_mask)
        return Vocabulary(entries)

    def rules(self, family: Family, head: str | None) -> Table:
        """Names of parameters; `head` is the name of the classification head here."""
        raise NotImplementedError

    def write(self, converted: Converted, head: str | None) -> Written:
        """The model, with the classification `head` alone if there is one.

        Raises:
            UsageError: the model has no counterpart.
        """
        raise NotImplementedError
