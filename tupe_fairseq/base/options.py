"""Options: typed keyword arguments with a help text, which become flags and hydra's keys."""

import functools
import inspect
from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

from .errors import ConfigurationError

#: Types of options, in words.
TYPES = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}


class Mark(Enum):
    """What an annotation says of an option besides its type and help.

    FIXED, FREE and FOR_LONGER_TEXTS say whether it may differ from the checkpoint that a training
    starts from. Without one of them, the training warns of the difference.
    """

    #: A checkpoint with another value is refused.
    FIXED = "fixed"
    #: It may differ from the checkpoint: it is about speed, acts in training only, or is checked
    #: elsewhere.
    FREE = "free"
    #: It is for longer texts: free, unless the checkpoint was already trained for them.
    FOR_LONGER_TEXTS = "for longer texts"


class Option(NamedTuple):
    """A flag, declared by a keyword-only argument."""

    name: str
    type: type
    default: Any
    help: str
    marks: tuple[Mark, ...] = ()

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    def check(self, value: Any) -> None:
        """Check the type of a value: hydra reads `no`, for instance, as a string, which is true.

        Raises:
            ConfigurationError: it has another type.
        """
        if value is None or self.type not in TYPES:
            return
        # An int is a float, too; a bool is an int only to Python.
        accepted = (int, float) if self.type is float else self.type
        if not isinstance(value, accepted) or (self.type is not bool and isinstance(value, bool)):
            raise ConfigurationError(f"{self.flag} must be {TYPES[self.type]}, but is {value!r}.")


def declared_options(called: Callable[..., Any]) -> tuple[Option, ...]:
    """Keyword-only arguments: ``name: Annotated[type, help, *marks] = default``.

    Args:
        called: a class, whose constructor is read, or a function.

    Raises:
        TypeError: one has no such annotation.
    """
    # Read once: a model of one layer asks dozens of times.
    return _declared(called)


@functools.cache
def _declared(called: Callable[..., Any]) -> tuple[Option, ...]:
    function = called.__init__ if isinstance(called, type) else called  # type: ignore[misc]
    hints = get_type_hints(function, include_extras=True)
    options = []
    for parameter in inspect.signature(called).parameters.values():
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue
        hint = hints.get(parameter.name)
        # Python 3.10 makes a type optional if the default is None.
        hint = next((each for each in get_args(hint) if get_origin(each) is Annotated), hint)
        if get_origin(hint) is not Annotated:
            raise TypeError(
                f"{called.__name__}: annotate option {parameter.name!r} as Annotated[type, help]."
            )
        kind, text, *marks = get_args(hint)
        # `float | None` is a float that need not be given.
        kind = next((each for each in get_args(kind) if each is not type(None)), kind)
        options.append(Option(parameter.name, kind, parameter.default, text, tuple(marks)))
    return tuple(options)
