"""Scripts that users run need the installed package alone, not the folder examples/."""

import subprocess
import sys

from tests import ROOT

PROGRAM = """
import runpy, sys
root, package, *scripts = sys.argv[1:]
sys.path[:] = [package, root + "/scripts", *(path for path in sys.path if path not in ("", root))]
for script in scripts:
    sys.argv = [script, "--help"]
    try:
        runpy.run_path(f"{root}/scripts/{script}.py", run_name="__main__")
    except SystemExit as ended:
        assert not ended.code
"""
SCRIPTS = (
    "plot_speed",
    "plot_positional_correlations",
    "benchmark_training",
    "average_checkpoints",
    "convert_checkpoint",
    "benchmark_serving",
    "plot_serving",
)


def test_help(tmp_path):
    (tmp_path / "tupe_fairseq").symlink_to(ROOT / "tupe_fairseq")
    command = [sys.executable, "-c", PROGRAM, str(ROOT), str(tmp_path), *SCRIPTS]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage:") == len(SCRIPTS)
