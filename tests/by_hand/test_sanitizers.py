"""The kernels in C, compiled with sanitizers, under the tests of what is handed to them."""

import os
import subprocess
import sys

import pytest

from tests import ROOT

SANITIZERS = "-fsanitize=address,undefined"
#: Of wrong shapes, and of every encoding with padding, windows and gradients.
TESTS = {
    "kernels": ["tests/kernels", "--ignore=tests/kernels/test_native.py"],
    "blocked": ["tests/attention/test_blocked.py", "-k", "not no_tensor_of_all_cells"],
    "inputs": ["tests/huggingface/test_independence.py", "tests/huggingface/test_tasks.py"],
}


def library(name: str) -> str:
    """The path of a runtime library of gcc."""
    command = ["gcc", f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("name", TESTS)
def test_nothing_outside_of_a_tensor_is_read_or_written(name, tmp_path):
    own = {
        "CC": f"gcc {SANITIZERS} -fno-sanitize-recover=all",
        # Before all else, because Python itself is not compiled with them.
        "LD_PRELOAD": f"{library('libasan.so')} {library('libubsan.so')}",
        # Python and torch free nothing at the end.
        "ASAN_OPTIONS": "detect_leaks=0",
        "XDG_CACHE_HOME": str(tmp_path),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS[name]]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | own, capture_output=True, text=True)
    print(name, done.stdout.splitlines()[-1])
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    # Compiled by this command, and for this test.
    assert list(tmp_path.glob("tupe_fairseq/kernels-*.so"))
