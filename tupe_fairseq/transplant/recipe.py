"""How an encoder gets another position encoding: arguments of the command and `transplant`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..base.errors import UsageError
from ..position import POSITION_ENCODINGS, model_options

#: Tokens of a text, if both encoders read as many.
LENGTH = 128
STARTS = ("mean", "random")


@dataclass(frozen=True)
class Recipe:
    """What decides the result, besides the source and the texts.

    Attributes:
        position_encoding: the name of the new one.
        options: its own and those of every encoding, by name.
        length: tokens of a text at most; None: 128, or fewer if one encoder reads fewer.
        max_positions: the longest text of the new encoder, in tokens; None: that of the source.
        updates: at most.
        lr: the largest learning rate, of AdamW.
        position_lr: that of the parameters of the position encoding.
        batch_size: texts of an update.
        disordered: the share of texts whose words are in another order.
        pairs: the share of texts that are read as the pair of their halves.
        layers: the weight of the features of layers before the last one.
        start: where positions begin (`start.py`).
        seed: of new parameters and the order of texts.
        bf16: products of matrices are in bfloat16, in the training and in its measures.

    Raises:
        UsageError: a number is out of range; the encoding does not exist, is for decoders, or has
            no such option.
    """

    position_encoding: str
    options: Mapping[str, Any] = field(default_factory=dict)
    length: int | None = None
    max_positions: int | None = None
    updates: int = 2000
    lr: float = 3e-4
    position_lr: float = 2e-3
    batch_size: int = 32
    disordered: float = 0.5
    pairs: float = 0.5
    layers: float = 4.0
    start: str = "mean"
    seed: int = 1
    bf16: bool = False

    def __post_init__(self) -> None:
        for name in ("updates", "batch_size", "length", "max_positions"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise UsageError(f"{_flag(name)} is {value}, but must be at least 1.")
        for name in ("disordered", "pairs"):
            if not 0 <= (value := getattr(self, name)) <= 1:
                raise UsageError(f"{_flag(name)} is {value}, but must be between 0 and 1.")
        if self.start not in STARTS:
            raise UsageError(
                f"--start is {self.start!r}, but must be one of: {', '.join(STARTS)}."
            )
        self._check_options()

    def _check_options(self) -> None:
        own = POSITION_ENCODINGS[self.position_encoding].options()
        known = {option.name for option in (*model_options(), *own)}
        for name in self.options:
            if name not in known:
                raise UsageError(
                    f"{_flag(name)} does not apply to --position-encoding "
                    f"{self.position_encoding}."
                )
        if self.options.get("extend_positions") == "hierarchical":
            raise UsageError(
                "--extend-positions is 'hierarchical', which continues trained positions, but "
                "those of a transplant are new."
            )

    def length_for(self, longest: int) -> int:
        """Tokens of a text in the training, for a source that reads so many.

        Raises:
            UsageError: one of the encoders reads fewer than `length`.
        """
        both = min(longest, self.max_positions or longest)
        length = self.length or min(LENGTH, both)
        if length > both:
            raise UsageError(
                f"--length is {length}, but must be at most {both}, which both encoders can read."
            )
        return length


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
