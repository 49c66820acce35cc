"""The configuration beside a program in ONNX: transformers reads it without torch."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("transformers", reason="transformers is not installed")

from tupe_fairseq.convert.formats import onnx
from tupe_fairseq.huggingface import TupeConfig

LOAD = """
import sys
for name in ("torch", "tupe_fairseq", "fairseq"):
    sys.modules[name] = None
import transformers
config = transformers.AutoConfig.from_pretrained(sys.argv[1], trust_remote_code=True)
print(config.attention_window, config.global_every)
"""


def test_a_configuration_is_read_without_torch(tmp_path):
    (tmp_path / "out").mkdir()
    onnx._write_config(tmp_path / "out", TupeConfig(attention_window=3))
    environment = {**os.environ, "HF_MODULES_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", LOAD, tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.stdout.split() == ["3", "0"], done.stderr
