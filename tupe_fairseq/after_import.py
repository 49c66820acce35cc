"""A function that runs as soon as another library is imported, which it does not import itself."""

import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from typing import Any


def after_import(name: str, function: Callable[[], object]) -> None:
    """Call a function when a top-level module has been imported: now, if it is there already."""
    if sys.modules.get(name) is not None:
        function()
    else:
        sys.meta_path.insert(0, _Watcher(name, function))


class _Watcher(MetaPathFinder):
    """Finds one module by the other finders, and has the function called after its import."""

    def __init__(self, name: str, function: Callable[[], object]):
        self.name, self.function = name, function

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self.name:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find and finder is not self else None
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self)
                return spec
        return None


class _Loader(Loader):
    """A module's own loader, which the module has again when it runs."""

    def __init__(self, own: Any, watcher: _Watcher):
        self.own, self.watcher = own, watcher

    def create_module(self, spec: Any) -> Any:
        return self.own.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self.own
        if self.watcher in sys.meta_path:
            sys.meta_path.remove(self.watcher)
        self.own.exec_module(module)
        self.watcher.function()
