"""The options of every encoding: what a user can set of a model's attention besides its encoding.

Configurations for transformers read this file, also where there is no torch.
"""

from dataclasses import dataclass
from typing import Annotated

from ..base.errors import ConfigurationError
from ..base.options import Mark, Option, declared_options


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Options of every encoding. To add one, add a field here and read it from `Shape`.

    Flags, hydra's keys, checks of types, settings of `TupeConfig`, conversions, and the comparison
    with the checkpoint that a training starts from follow from the fields.

    Raises:
        ConfigurationError: a value has another type, the window is too small, or it is not clear
            which layers have it.
    """

    # [CLS] is then as a global token of Longformer (Beltagy et al. 2020).
    attention_window: Annotated[
        int | None,
        "tokens attend to each other up to this distance only; an untied [CLS] sees all tokens "
        "and is seen by all",
    ] = None
    # In ModernBERT (Warner 2024), N is 3.
    global_every: Annotated[
        int, "layers 0, N, 2N, ... have no --attention-window; 0: all layers have it"
    ] = 0
    extend_positions: Annotated[
        str | None,
        "how a checkpoint with fewer positions than --max-positions is extended: `hierarchical` "
        "makes its position table longer, `toeplitz` continues TUPE's term by distance",
        Mark.FREE,
    ] = None

    def __post_init__(self) -> None:
        for option in model_options():
            option.check(getattr(self, option.name))
        window = self.attention_window
        every = self.global_every
        if window is not None and window < 1:
            raise ConfigurationError(
                f"--attention-window is {window}, but must be at least 1 (the neighbours of a "
                "token): leave it out for no window."
            )
        if every < 0 or every == 1:
            raise ConfigurationError(
                f"--global-every is {every}, but must be at least 2, or 0 for no global layer: "
                "leave out --attention-window if all layers are to be global."
            )
        if every and window is None:
            raise ConfigurationError(
                f"--global-every is {every}, but without --attention-window all layers are "
                "global: give both, or none."
            )


def model_options() -> tuple[Option, ...]:
    """The options of every encoding."""
    return declared_options(ModelOptions)
