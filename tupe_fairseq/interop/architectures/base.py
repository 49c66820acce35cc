"""What differs between the kinds of models of transformers that are converted."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ..dictionaries import check_size, read_dictionary
from ..families import Family
from ..keys import Table
from ..models import Converted
from ..vocabularies import Vocabulary


class Architecture:
    """Models with one `model_type`.

    Settings are exchanged by their names in `TupeConfig`, whose models have those of all others.

    Attributes:
        model_type: in config.json; also the first part of the names of parameters below a head.
        embed_tokens: name of the token embeddings.
        matrices: names of further parameters without which nothing can be read.
    """

    model_type: str
    embed_tokens: str
    matrices: tuple[str, ...] = ()

    def check(self, config: Mapping[str, Any], path: Path) -> None:
        """Check that the settings in config.json, at `path`, have a counterpart here.

        Raises:
            CheckpointError: one has none.
        """

    def vocabulary(
        self, folder: Path, dictionary: str | Path | None, rows: int, family: Family
    ) -> Vocabulary:
        """The dictionary of a directory: `dictionary`, or dict.txt in the directory.

        Raises:
            UsageError: there is none, or its size is not that of the embeddings, `rows`.
        """
        path = Path(dictionary or folder / "dict.txt")
        entries = read_dictionary(path)
        check_size(entries, rows, path, family.adds_mask)
        return Vocabulary(entries)

    def read(
        self,
        config: Mapping[str, Any],
        theirs: dict[str, Tensor],
        vocabulary: Vocabulary,
        learned: bool,
        notes: list[str],
    ) -> dict[str, Any]:
        """The configuration as `TupeConfig` has it; parameters are changed in place accordingly.

        Args:
            config: config.json, after `check`.
            theirs: parameters by their names.
            vocabulary: the dictionary.
            learned: whether positions stay `learned`; False for a warm start.
            notes: what the user should know is added.
        """
        return dict(config)

    def difference(self, config: Mapping[str, Any]) -> str:
        """Why outputs differ from those in transformers, or ""."""
        return ""

    def rules(self, family: Family, head: str | None) -> Table:
        """Names of parameters; `head` is the name of the classification head here."""
        raise NotImplementedError

    def write(
        self, converted: Converted, head: str | None
    ) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Contents of config.json, and parameters by their names.

        With a classification `head`, the model is a sentence classifier with that head.

        Raises:
            UsageError: the model has no counterpart.
        """
        raise NotImplementedError
