"""The files of this package that a model for transformers needs, for a directory of its own.

transformers loads code beside a model with `trust_remote_code=True`. It copies the file that
`auto_map` names and the files that this one imports, all from one folder. So each file of the
package becomes a file there, `position/t5.py` becomes `tupe_position_t5.py`, and relative imports
are rewritten; nothing else changes.
"""

import ast
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..base.errors import ConfigurationError
from ..position import POSITION_ENCODINGS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT.name
CONFIGURATION = "huggingface.configuration"
#: Files of models that transformers knows by name; a file may import those before it.
MODELS = {
    "huggingface.modeling": "modeling_tupe_base",
    "huggingface.with_head": "modeling_tupe_head",
    "huggingface.tasks": "modeling_tupe",
}
NAMED = {CONFIGURATION: "configuration_tupe", **MODELS}
#: Backends for CPUs and GPUs. Those that compile code are left out, or run without it.
BACKENDS = tuple(f"attention.{name}" for name in ("blocked", "eager", "flash", "sdpa"))
#: Entries of `auto_map` in config.json.
AUTO_MAP = {
    "AutoConfig": "configuration_tupe.TupeConfig",
    "AutoModel": "modeling_tupe_base.TupeModel",
    **{
        f"AutoModelFor{task}": f"modeling_tupe.TupeFor{task}"
        for task in (
            "MaskedLM",
            "MultipleChoice",
            "QuestionAnswering",
            "SequenceClassification",
            "TokenClassification",
        )
    },
}
HEADER = (
    f"# From {PACKAGE}/{{path}} of the package {PACKAGE} (MIT license); imports are rewritten.\n"
)


def collect(
    position_encoding: str, options: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, str]:
    """Names and contents of all files for a model with this encoding.

    One of its options may name another encoding, whose files are then among them.

    Raises:
        ConfigurationError: the encoding is not one of this package.
    """
    module = POSITION_ENCODINGS[position_encoding].__module__
    if not module.startswith(f"{PACKAGE}."):
        raise ConfigurationError(
            f"--position-encoding is {position_encoding!r} of {module}, whose code cannot be "
            f"written: only the code of encodings in {PACKAGE} is written."
        )
    options = POSITION_ENCODINGS[position_encoding].defaults() | options
    values = set(map(str, options.values()))
    named = [POSITION_ENCODINGS[value] for value in values if value in POSITION_ENCODINGS]
    bases = (cls.__module__.partition(".")[2] for cls in named)
    registered = (module.partition(".")[2], *bases, *BACKENDS)
    texts: dict[str, str] = {}
    waiting = {*MODELS, *registered}
    while waiting:
        name = waiting.pop()
        texts[name], imported = _rewritten(name)
        waiting |= imported - texts.keys()
    optional = sorted(filter(_needs_triton, texts))
    # Of any class, transformers saves the files that its file names.
    for index, name in enumerate(MODELS):
        above = [CONFIGURATION, *list(MODELS)[index + 1 :], *optional]
        texts[name] = _with_imports(texts[name], sorted(texts.keys() - {name, *above}), above)
    # transformers finds the class of a model by that of its configuration, so that two models
    # with different code must not have configurations in equal files.
    digest = hashlib.sha256("".join(text for _, text in sorted(texts.items())).encode())
    texts[CONFIGURATION] += f"\n\n# Digest of all files: {digest.hexdigest()[:16]}\n"
    return {f"{_flat(name)}.py": text for name, text in sorted(texts.items())}


def _flat(module: str) -> str:
    return NAMED.get(module) or f"tupe_{module.replace('.', '_')}"


def _file(module: str) -> Path:
    """The file of a module, relative to the package's folder, without regard to its existence."""
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(_file(module).read_text(encoding="utf-8"))


@cache
def _rewritten(module: str) -> tuple[str, frozenset[str]]:
    """The text of a module with flat imports, and the modules that it imports."""
    path = _file(module)
    imported = set()
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    nodes = [n for n in ast.walk(_tree(module)) if isinstance(n, ast.ImportFrom) and n.level]
    # From the last on, so that the numbers of earlier lines stay.
    for node in sorted(nodes, key=lambda node: -node.lineno):
        new: dict[str, None] = {}
        for alias in node.names:
            source, name = _origin(_target(module, node), alias.name)
            imported.add(source)
            local = alias.asname or alias.name
            if name is None:
                # The first line is for transformers, which does not read the second.
                new[f"from .{_flat(source)} import __doc__ as _\n"] = None
                new[f"from . import {_flat(source)} as {local}\n"] = None
            else:
                named = name if local == name else f"{name} as {local}"
                new[f"from .{_flat(source)} import {named}\n"] = None
        indent = " " * node.col_offset
        lines[node.lineno - 1 : node.end_lineno] = [indent + line for line in new]
    return HEADER.format(path=path.relative_to(ROOT)) + "".join(lines), frozenset(imported)


@cache
def _needs_triton(module: str) -> bool:
    """Whether a module cannot be imported where triton is not installed."""
    for node in _tree(module).body:
        if isinstance(node, ast.Import) and "triton" in {each.name for each in node.names}:
            return True
        if isinstance(node, ast.ImportFrom) and node.level:
            above = _target(module, node)
            if any(_needs_triton(_origin(above, each.name)[0]) for each in node.names):
                return True
    return False


def _target(module: str, node: ast.ImportFrom) -> str:
    """The module that a relative import names."""
    parts = module.split(".")[: -node.level]
    return ".".join([*parts, *([node.module] if node.module else [])])


def _origin(module: str, name: str) -> tuple[str, str | None]:
    """The module that defines a name, and the name there; None where the name is a module."""
    if _file(module).name != "__init__.py":
        return module, name
    if _file(f"{module}.{name}").exists():
        return f"{module}.{name}", None
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.ImportFrom) and node.level:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    # As seen from a file of that folder.
                    return _origin(_target(f"{module}.__init__", node), alias.name)
    raise ImportError(f"{module} does not import {name} from a file of {PACKAGE}")


def _with_imports(text: str, modules: list[str], above: list[str]) -> str:
    """The text with imports of these modules after its docstring.

    Those `above` import this one or need triton, so their imports stand in a function that nothing
    calls.
    """
    end = ast.parse(text).body[0].end_lineno
    lines = text.splitlines(keepends=True)
    imports = [f"from .{_flat(module)} import __doc__ as _\n" for module in modules]
    named = "\n# Names every file, for transformers to copy it.\n"
    later = [f"    from .{_flat(module)} import __doc__ as _\n" for module in above]
    unused = [
        "\n\ndef _files() -> None:\n",
        '    """Names what this does not import."""\n',
    ]
    return "".join((*lines[:end], named, *imports, *lines[end:], *unused, *later))
