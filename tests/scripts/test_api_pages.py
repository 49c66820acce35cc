"""scripts/api_pages.py: every public name is on the pages."""

import importlib
import inspect

import pytest

from scripts.api_pages import MODULES
from tests import ROOT, processes


@pytest.mark.slow
def test_every_public_name_has_its_entry(tmp_path):
    done = processes.run(ROOT / "scripts" / "api_pages.py", tmp_path / "api")
    assert done.returncode == 0, done.stderr
    missing = []
    for name in MODULES:
        module = importlib.import_module(name)
        own = [key for key, value in vars(module).items() if inspect.getmodule(value) is module]
        names = getattr(module, "__all__", [key for key in own if not key.startswith("_")])
        assert names
        page = (tmp_path / "api" / f"{name.replace('.', '/')}.html").read_text(encoding="utf-8")
        missing += [f"{name}.{each}" for each in names if f'id="{each}"' not in page]
        # An entry without its docstring would be of no use.
        missing += [f"{name}.{each}: text" for each in names if not _text(module, each)]
    assert not missing


def _text(module, name):
    return inspect.getdoc(getattr(module, name))
