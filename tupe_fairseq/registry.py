"""Name -> object tables with messages: a duplicate raises, an unknown name lists the known ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .errors import UsageError


class Registry:
    """A table of what one flag can name.

    Args:
        flag: the command line flag whose values are registered, e.g. "--position-encoding".
    """

    def __init__(self, flag: str):
        self.flag = flag
        self._entries: dict[str, Any] = {}

    def register(self, name: str):
        """Decorator that enters a class or object under ``name``."""

        def enter(entry):
            if name in self._entries:
                raise ValueError(f"{self.flag} {name!r} is already registered: {self._entries[name]}")
            self._entries[name] = entry
            return entry

        return enter

    def __getitem__(self, name: str):
        if name not in self._entries:
            raise UsageError(f"{self.flag} is {name!r}, but the known ones are: {', '.join(self)}.")
        return self._entries[name]

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def items(self) -> Iterator[tuple[str, Any]]:
        return ((name, self._entries[name]) for name in self)
