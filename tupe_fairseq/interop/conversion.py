"""The table of conversions behind `scripts/convert_checkpoint.py`.

To add a format, add a file to `formats/` that registers its conversions: the flags, `--help` and
`--check` follow from the table, and a test compares the list in the README.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..options import Option, declared_options
from ..registry import Registry

#: Ids B×T -> logits: B×T×V, or B×classes of a head.
Forward = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Conversion:
    """One format in one direction.

    Attributes:
        flag: "--from" or "--to".
        name: of the format.
        summary: what the format is, in one line.
        function: for --from (source, dictionary, **options) -> `Converted`;
            for --to (converted, out, **options) -> None. Keyword-only arguments become flags;
            those of the type bool are yes or no.
        outputs: (path, converted, head) -> `Forward` of the model in this format, computed without
            `tupe_roberta`, for --check. If `head` is not None, of that classification head. None
            if the models of `function` are not comparable.
        source: "CHECKPOINT", a file, or "DIRECTORY".
        extra: the extra of this package that is needed, if any.
    """

    flag: str
    name: str
    summary: str
    function: Callable[..., Any]
    outputs: Callable[..., Forward] | None = None
    source: str = "DIRECTORY"
    extra: str | None = None

    @property
    def options(self) -> tuple[Option, ...]:
        """Flags of this conversion alone."""
        return declared_options(self.function)

    @property
    def command(self) -> str:
        """All arguments that are required, for `--help` and the README."""
        return f"{self.flag} {self.name} {self.source} --out DIRECTORY"


CONVERSIONS = Registry("conversion")


def register(conversion: Conversion) -> None:
    """Enter a conversion into the table."""
    CONVERSIONS.register(f"{conversion.flag} {conversion.name}")(conversion)
