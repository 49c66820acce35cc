"""Tables of what a flag can name: a duplicate raises, an unknown name lists the known ones."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from .errors import ConfigurationError

Entry = TypeVar("Entry")


class Registry:
    """A table of what one flag can name.

    Args:
        flag: the command line flag whose values are registered, e.g. "--position-encoding".
        special: further values of the flag that stand for no entry, e.g. "auto".
    """

    def __init__(self, flag: str, special: tuple[str, ...] = ()):
        self.flag = flag
        self.special = special
        self._entries: dict[str, Any] = {}

    def register(self, name: str) -> Callable[[Entry], Entry]:
        """Decorator that enters a class or object under ``name``."""

        def enter(entry: Entry) -> Entry:
            if name in self._entries or name in self.special:
                raise ValueError(f"{self.flag} {name!r} is registered already.")
            self._entries[name] = entry
            return entry

        return enter

    def __getitem__(self, name: str) -> Any:
        if name not in self._entries:
            raise ConfigurationError(
                f"{self.flag} is {name!r}, but the known ones are: {', '.join(self.names())}."
            )
        return self._entries[name]

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def names(self) -> list[str]:
        """Everything the flag takes."""
        return [*self.special, *self]

    def items(self) -> Iterator[tuple[str, Any]]:
        """Names and entries."""
        return ((name, self._entries[name]) for name in self)
