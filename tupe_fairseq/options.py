"""Options: typed keyword arguments with a help text, which become flags."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints


class Option(NamedTuple):
    """A flag, declared by a keyword-only argument."""

    name: str
    type: type
    default: Any
    help: str

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


def options_of(called: Callable[..., Any]) -> tuple[Option, ...]:
    """Keyword-only arguments of a class or function: ``name: Annotated[type, help] = default``.

    Raises:
        TypeError: one has no such annotation.
    """
    function = called.__init__ if isinstance(called, type) else called  # type: ignore[misc]
    hints = get_type_hints(function, include_extras=True)
    found = []
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
        kind, text = get_args(hint)
        # `float | None` is a float that need not be given.
        kind = next((each for each in get_args(kind) if each is not type(None)), kind)
        found.append(Option(parameter.name, kind, parameter.default, text))
    return tuple(found)
