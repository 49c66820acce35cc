"""How near a program in ONNX is to the model that it was made from, and the limit of that."""

from pathlib import Path

import torch
from torch import Tensor

from ..base.errors import ConfigurationError, DataError
from ..base.fidelity import LEAST_COSINES, Fidelity, compare, standard_ids, vector
from ..base.texts import read_lines
from .conversion import Encode, Forward
from .models import Converted


class Texts:
    """What programs are compared on: the lines of a file, or the standard set of random tokens.

    Args:
        file: with a text in each line; None: the standard set.
        least_cosine: the limit of each text; None: that of the precision.
        has_default: whether there is such a limit. Logits of a few classes have none: near zero,
            their direction says little.

    Raises:
        UsageError: the file or the limit cannot be used.
    """

    def __init__(self, file: Path | None, least_cosine: float | None, has_default: bool):
        if least_cosine is not None and not 0 <= least_cosine <= 1:
            raise ConfigurationError(f"--least-cosine is {least_cosine}, but must be from 0 to 1.")
        self.limits = {
            each: default if least_cosine is None else least_cosine
            for each, default in LEAST_COSINES.items()
            if has_default or least_cosine is not None
        }
        self.file = file
        self.lines: list[str] = []
        if file is not None:
            name = f"--texts is {str(file)!r}"
            self.lines = [line for line in read_lines(file, name) if line.strip()]
            if not self.lines:
                raise DataError(f"{name}, which holds no text.")

    def ids(self, converted: Converted, encode: Encode | None) -> list[Tensor]:
        """1×T of each text.

        Raises:
            DataError: there is no tokenizer for the texts.
        """
        settings = converted.settings
        longest = settings["max_position_embeddings"]
        if self.file is None:
            rows = standard_ids(settings["vocab_size"], settings["pad_token_id"], longest)
        elif encode is None:
            raise DataError(f"--texts is {str(self.file)!r}, but there is no tokenizer: omit it.")
        else:
            rows = [encode((line,)) for line in self.lines]
        return [torch.tensor([row[:longest]]) for row in rows]

    def check(self, name: str, fidelity: Fidelity) -> str:
        """A line of the report on the program of this name.

        Raises:
            ConfigurationError: a cosine is below the limit.
        """
        limit = self.limits.get(fidelity.precision)
        if limit is not None and not fidelity.least >= limit:
            other = "leave --int8 out, or " if fidelity.precision == "int8" else ""
            raise ConfigurationError(
                f"--least-cosine is {limit}, but {name} has a {fidelity}: {other}lower it."
            )
        return f"{name}: {fidelity}"


@torch.no_grad()
def measure(precision: str, program: Forward, source: Forward, ids: list[Tensor]) -> Fidelity:
    """The fidelity of a program on texts, one by one."""
    found, expected = ([vector(each(row)[0]) for row in ids] for each in (program, source))
    return compare(precision, found, expected)
