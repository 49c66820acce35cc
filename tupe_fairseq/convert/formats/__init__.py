"""Formats of models, one file each; every file of this folder is imported and registers itself."""

import importlib
import importlib.util
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    # Those of fairseq are left out where it is not installed.
    if _module.name != "fairseq" or importlib.util.find_spec("fairseq"):
        importlib.import_module(f"{__name__}.{_module.name}")
