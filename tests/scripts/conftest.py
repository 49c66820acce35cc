"""What tests of scripts share."""

import importlib

import pytest

from tests import ROOT


@pytest.fixture(scope="module")
def script():
    """A script or module of its folder, by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "scripts")
        yield importlib.import_module
