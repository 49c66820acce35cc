"""The example of an encoding outside the package, trained by the real command."""

from __future__ import annotations

import math
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "add_an_encoding"
#: In a process of its own, since the registry is global and other tests walk it.
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT}:{EXAMPLE}"}


def test_readme_command(toy_masked_lm_data, tmp_path):
    (block,) = re.findall(r"```bash\n(.*?)```", (EXAMPLE / "README.md").read_text(), re.DOTALL)
    program, data, *flags = shlex.split(block.replace("\\\n", " "))
    assert (program, data) == ("fairseq-train", "data-bin")
    smaller = ["--max-update", "2", "--cpu", "--save-dir", str(tmp_path)]
    subprocess.run(
        [sys.executable, "-m", "fairseq_cli.train", toy_masked_lm_data, *flags, *smaller],
        cwd=ROOT,
        env=ENVIRONMENT,
        check=True,
        capture_output=True,
    )
    state = torch.load(tmp_path / "checkpoint_last.pt", weights_only=False)
    assert state["cfg"]["model"].position_encoding == "kerple_log"
    assert state["cfg"]["model"].kerple_scale == 0.5
    positions = "encoder.sentence_encoder.embed_positions."
    learned = {name for name in state["model"] if name.startswith(positions)}
    assert learned == {f"{positions}log_r1", f"{positions}log_r2"}


def test_equation():
    """Against loops: score_ij = −r1 log(1 + r2 |i − j|)."""
    program = (
        "import my_encodings, torch; from tupe_fairseq import build_position_encoding as build;"
        "e = build('kerple_log', 8, 2, 16, kerple_scale=0.5); e.log_r2.data.fill_(0.7);"
        "print(*e.score(5, 5).dense()[1].flatten().tolist())"
    )
    command = [sys.executable, "-c", program]
    printed = subprocess.run(command, env=ENVIRONMENT, check=True, capture_output=True, text=True)
    scores = [float(number) for number in printed.stdout.split()]
    expected = [
        -0.5 * math.log(1 + math.exp(0.7) * abs(i - j)) for i in range(5) for j in range(5)
    ]
    torch.testing.assert_close(torch.tensor(scores), torch.tensor(expected))
