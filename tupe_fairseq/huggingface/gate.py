"""What `optimize` measures of an encoder that it has changed, and the limit that it must reach."""

import copy
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..base.errors import ConfigurationError, DataError
from ..base.fidelity import LEAST_COSINES, Fidelity, compare, standard_ids, vector

logger = logging.getLogger(__name__)
#: Positions that may not be those of tokens: RoBERTa's first two.
UNUSED = 2
#: What else may be the reason, by engine.
REASONS = {
    "onnxruntime": "; or directory has another model's program, or the encoder hooks, which a "
    "program has not: name a new directory, remove the hooks"
}


class Gate:
    """The texts and the limit of a call of `optimize`.

    Args:
        model: whose tokenizer reads texts.
        precision: of the changed encoders.
        engine: that computes them.
        texts: texts, or token ids of each; None: random tokens.
        least_cosine: the limit of each text; None: that of the precision.

    Raises:
        ConfigurationError: the limit is no cosine.
        DataError: there are no texts, or no tokenizer for them.
    """

    def __init__(
        self,
        model: Any,
        precision: str,
        engine: str,
        texts: Sequence[Any] | None,
        least_cosine: float | None,
    ):
        self.precision = precision
        self.reason = REASONS.get(engine, "")
        self.limit = LEAST_COSINES[precision] if least_cosine is None else least_cosine
        if not 0 <= self.limit <= 1:
            raise ConfigurationError(f"least_cosine is {self.limit}, but must be from 0 to 1.")
        #: In fp32, torch's modules compute what they did.
        asked = texts is not None or least_cosine is not None
        self.measures = asked or (precision, engine) != ("fp32", "torch")
        self.texts = texts
        self.tokenizer = getattr(model, "tokenizer", None)
        if texts is not None:
            _check(texts, self.tokenizer is not None, type(model).__name__)

    def measure(self, source: Any, encoder: Any) -> Fidelity:
        """The fidelity of an encoder, which it keeps as `fidelity`.

        Raises:
            ConfigurationError: it is below the limit.
        """
        fidelity: Fidelity | None = getattr(source, "fidelity", None)
        # An encoder that has this precision already stays as it is.
        if fidelity is None or fidelity.precision != self.precision:
            ids = self._ids(source.config)
            fidelity = compare(self.precision, _vectors(encoder, ids), _vectors(source, ids))
        if not fidelity.least >= self.limit:
            raise ConfigurationError(
                f"least_cosine is {self.limit}, but {type(source).__name__} has a {fidelity}: use "
                f"another precision, or lower least_cosine{self.reason}."
            )
        encoder.fidelity = fidelity
        logger.info("%s: %s", type(source).__name__, fidelity)
        return fidelity

    def _ids(self, config: Any) -> list[Tensor]:
        """1×T of each text."""
        longest = max(1, config.max_position_embeddings - UNUSED)
        rows = self.texts
        if rows is None:
            rows = standard_ids(config.vocab_size, config.pad_token_id, longest)
        elif isinstance(rows[0], str):
            assert self.tokenizer is not None
            rows = self.tokenizer(list(rows), truncation=True, max_length=longest)["input_ids"]
        return [torch.as_tensor(row)[None, :longest] for row in rows]


def _check(texts: Sequence[Any], has_tokenizer: bool, name: str) -> None:
    """Check the texts of a call."""
    if isinstance(texts, str) or not len(texts) or not all(len(each) for each in texts):
        raise DataError(
            f"texts is {texts!r}, but must be a list of texts, or of token ids of each."
        )
    strings = [isinstance(each, str) for each in texts]
    if any(strings) and not (all(strings) and has_tokenizer):
        raise DataError(
            f"texts has strings, but {name} has no tokenizer: give lists of token ids."
            if all(strings)
            else "texts has strings and token ids: give one of them."
        )


@torch.no_grad()
def _vectors(encoder: Any, ids: list[Tensor]) -> list[Tensor]:
    """The vector of each text, without dropout."""
    device = next(encoder.parameters()).device
    nothing = {"output_attentions": False, "output_hidden_states": False}
    found = []
    with evaluating(encoder):
        for row in ids:
            here = row.to(device)
            out = encoder(input_ids=here, attention_mask=torch.ones_like(here), **nothing)
            found.append(vector(out[0][0]))
    return found


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Compute in eval mode; each module gets its mode back."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def unchanged_on_error(model: nn.Module) -> Iterator[None]:
    """Give all modules back what they had if the block raises an error."""
    before = [(module, type(module), dict(vars(module))) for module in model.modules()]
    # Handles of hooks know these dictionaries, so each stays the same object.
    values_of_all = [value for _, _, values in before for value in values.values()]
    tables: list[Any] = [value for value in values_of_all if isinstance(value, dict | set)]
    contents = [(table, copy.copy(table)) for table in tables]
    try:
        yield
    except BaseException:
        for module, kind, values in before:
            module.__class__ = kind
            vars(module).clear()
            vars(module).update(values)
        for table, content in contents:
            table.clear()
            table.update(content)
        raise
