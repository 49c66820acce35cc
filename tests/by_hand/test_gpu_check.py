"""scripts/gpu_check.sh on a CPU: every step of it works."""

import json
import sys

from tests import ROOT
from tests.triton_interpreter import MISSING


def test_every_step_works_without_a_gpu(bash, tmp_path, monkeypatch):
    # Not the stand-in of the tests, which has imported triton: steps differ in TRITON_INTERPRET.
    monkeypatch.setenv("PYTHON", sys.executable)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    done = bash(ROOT / "scripts/gpu_check.sh", "--no-install", tmp_path)
    logs = {path.stem: path.read_text()[-2000:] for path in tmp_path.glob("*.log")}
    failed = [line.split()[0] for line in done.stdout.splitlines() if "failed" in line]
    assert done.returncode == 0, [done.stdout, done.stderr, *(logs[name] for name in failed)]
    files = {path.stem: path for path in tmp_path.glob("*.json")}
    tables = {name: json.loads(path.read_text())["tables"] for name, path in files.items()}
    steps = {"32x512", "32x512_half_padding", "32x512_compiled", "8x4096"}
    assert set(tables) == steps | {"attention_512", "attention_4096"}
    assert all(table["rows"] for found in tables.values() for table in found)
    assert '"wps"' in logs["train_tupe_r"]
    assert " passed" in logs["tests"]
    # Each step prints its tables.
    assert done.stdout.count("matrix products") == len(steps)
    if not MISSING:
        assert "kernels ... passed" in done.stdout
        assert "of torch" in done.stdout
