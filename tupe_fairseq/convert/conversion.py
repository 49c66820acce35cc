"""The table of conversions behind `scripts/convert_checkpoint.py`.

To add a format, add a file to `formats/` that registers its conversions: the flags, `--help` and
`--check` follow from the table, and a test compares the list in the README.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from ..base.options import Option, declared_options
from ..base.registry import Registry

#: Ids B×T -> logits: B×T×V, or B×classes of a head.
Forward = Callable[[Tensor], Tensor]
#: One or two texts -> their ids.
Encode = Callable[[tuple[str, ...]], list[int]]


@dataclass(frozen=True)
class Opened:
    """A model as its own format loads it, for --check; ids are those of `Converted`.

    Attributes:
        outputs: logits, those of a classification head, or features.
        encode: the tokenizer; None where there is none.
        labels: names of the classes by number; empty: not known.
        tokenizer: what it does, by parts (`tokenizer_files`); empty if fairseq does it.
        model: the module of torch that computes the outputs, if it does.
    """

    outputs: Forward
    encode: Encode | None = None
    labels: list[str] = field(default_factory=list)
    tokenizer: dict[str, Any] = field(default_factory=dict)
    model: nn.Module | None = None


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
        open: (path, converted, head) -> `Opened`, with the outputs of the classification `head` if
            it is not None; None if the model cannot be compared.
        source: "CHECKPOINT", a file or its directory, or "DIRECTORY".
        extra: the extra of this package that is needed, if any.
    """

    flag: str
    name: str
    summary: str
    function: Callable[..., Any]
    open: Callable[..., Opened | None] = lambda path, converted, head: None
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
