"""Tables of what a flag can name: a duplicate raises, an unknown name lists the known ones."""

from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeVar

from .errors import ConfigurationError

Entry = TypeVar("Entry")


class Registry:
    """A table of what one flag can name.

    Args:
        flag: the command line flag whose values are registered, e.g. "--position-encoding".
        special: further values of the flag that stand for no entry, e.g. "auto".
        deleted: values that version 0.3.0 was the last to have.
    """

    def __init__(
        self, flag: str, special: tuple[str, ...] = (), deleted: Collection[str] = frozenset()
    ):
        self.flag = flag
        self.deleted = deleted
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

    def refuse_deleted(self, name: str | None) -> None:
        """Check the value that an older file records.

        Raises:
            ConfigurationError: it is deleted.
        """
        if name in self.deleted and name not in self._entries:
            raise ConfigurationError(
                f"{self.flag} is {name!r}, which tupe_fairseq 0.3.0 was the last version to have: "
                "choose another one, or use that version."
            )

    def __getitem__(self, name: str) -> Any:
        self.refuse_deleted(name)
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
