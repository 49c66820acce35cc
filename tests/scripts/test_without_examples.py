"""Scripts that users run need the installed package alone, not the folder examples/."""

import subprocess
import sys

import pytest

from tests import ROOT

PROGRAM = """
import runpy, sys
root, package, script = sys.argv[1:]
sys.path[:] = [package, root + "/scripts", *(path for path in sys.path if path not in ("", root))]
sys.argv = [script, "--help"]
runpy.run_path(root + "/scripts/" + script, run_name="__main__")
"""
SCRIPTS = [
    "plot_speed",
    "plot_positional_correlations",
    "benchmark_training",
    "convert_checkpoint",
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_help(script, tmp_path):
    (tmp_path / "tupe_fairseq").symlink_to(ROOT / "tupe_fairseq")
    command = [sys.executable, "-c", PROGRAM, str(ROOT), str(tmp_path), f"{script}.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage:")
