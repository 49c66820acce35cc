"""What tests of scripts share."""

import importlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import ROOT

#: Models that take no time.
TINY = {
    "training": "--batch 2 --length 16 --layers 1 --width 16 --heads 2 --ffn 32 --rounds 2",
    "attention": "--lengths 7,16 --words 32 --layers 2 --width 16 --heads 2 --rounds 2",
}


@pytest.fixture(scope="module")
def script():
    """A script or module of its folder, by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "scripts")
        yield importlib.import_module


@pytest.fixture
def measure(script, tmp_path: Path) -> Callable[..., tuple[dict, str]]:
    """Run a benchmark on a tiny model; returns what --json and --markdown wrote."""

    def run(kind: str, flags: str, status: int = 0) -> tuple[dict, str]:
        files = [tmp_path / f"results.{name}" for name in ("json", "markdown")]
        words = f"--device cpu {TINY[kind]} {flags} --json={files[0]} --markdown {files[1]}"
        assert script(f"benchmark_{kind}").main(words.split()) == status
        assert sorted(tmp_path.iterdir()) == files
        return json.loads(files[0].read_text()), files[1].read_text()

    return run
