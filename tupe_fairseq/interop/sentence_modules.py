"""What modules.json of sentence-transformers does with features, and what a program does."""

import json
from collections.abc import Mapping

from ..errors import ConfigurationError
from .carried import MODULES

#: The modules that options of a program stand for.
KNOWN = ("Transformer", "Pooling", "Normalize")
#: What sentence-transformers called the kinds of pooling before its version 6.
MODES = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token"}


def compare_modules(files: Mapping[str, bytes], pooling: str, normalize: bool) -> list[str]:
    """Where the options of a program differ from modules.json, if `files` has one.

    Args:
        files: as `sentence_files` has read them.
        pooling: "mean" or "cls".
        normalize: whether the program's embeddings have unit length.

    Raises:
        ConfigurationError: there is a module that a program lacks.
    """
    modules = json.loads(files.get(MODULES, b"[]"))
    paths = {each.get("type", "").rpartition(".")[2]: each["path"] for each in modules}
    if others := sorted(paths.keys() - set(KNOWN)):
        raise ConfigurationError(
            f"--pooling is {pooling!r}, but {MODULES} also has {', '.join(others)}, which a "
            "program lacks: use --pooling none, and compute the rest from the features."
        )
    notes = []
    if "Pooling" in paths:
        mode = json.loads(files.get(f"{paths['Pooling']}/config.json", b"{}"))
        if mode.get("pooling_mode") != pooling and not mode.get(MODES[pooling]):
            notes.append(f"{MODULES} has another pooling than {pooling!r}")
    if paths and normalize != ("Normalize" in paths):
        there, here = ("does not", "does") if normalize else ("does", "does not")
        notes.append(f"{MODULES} {there} normalize embeddings, but this program {here}")
    return notes
