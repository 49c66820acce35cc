"""The API pages of pdoc: every public name is on the pages."""

import importlib
import inspect

import pytest

from tests import ROOT, processes
from tests.pages import commands


@pytest.mark.slow
def test_every_public_name_has_its_entry(tmp_path):
    ((_, *words),) = commands(ROOT / ".github" / "CONTRIBUTING.md", "pdoc")
    words[words.index("-o") + 1] = tmp_path / "api"
    done = processes.run("pdoc", *words)
    assert done.returncode == 0, done.stderr
    modules = [word for word in words if str(word).startswith("tupe_fairseq")]
    assert modules
    missing = []
    for name in modules:
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
