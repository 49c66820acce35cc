"""The example of an encoding outside the package, trained by the real command."""

import math

import pytest
import torch

from tests import ROOT, processes
from tests.pages import commands

EXAMPLE = ROOT / "examples" / "add_an_encoding"
#: In a process of its own, since the registry is global and other tests walk it.
PATH = f"{ROOT}:{EXAMPLE}"


def test_readme_command(toy_masked_lm_data, tmp_path):
    ((program, data, *flags),) = commands(EXAMPLE / "README.md")
    assert (program, data) == ("fairseq-train", "data-bin")
    smaller = ["--max-update", "2", "--cpu", "--save-dir", str(tmp_path)]
    words = (toy_masked_lm_data, *flags, *smaller)
    processes.run("fairseq_cli.train", *words, PYTHONPATH=PATH).check_returncode()
    state = torch.load(tmp_path / "checkpoint_last.pt", weights_only=False)
    assert state["cfg"]["model"].position_encoding == "gaussian"
    assert state["cfg"]["model"].gaussian_width == 4
    positions = "encoder.sentence_encoder.embed_positions."
    learned = {name for name in state["model"] if name.startswith(positions)}
    assert learned == {f"{positions}w", f"{positions}b"}


PROGRAM = """
import my_encodings, torch
from tupe_fairseq import build_position_encoding as build
gaussian = build("gaussian", 8, 2, 16, gaussian_width=0.5)
gaussian.b.data.fill_(-3)
print(*gaussian.attention_bias(5, 5).dense()[1].flatten().tolist())
terms, q = build("token_slopes", 8, 2, 16).build_layer_terms(), torch.zeros(1, 2, 5, 4)
terms.w.data[1] = 0.5
print(*terms.content(q, q, torch.ones(1, 5, 8), None)[0, 1].flatten().tolist())
"""


def test_equations(tmp_path):
    """Against loops: −|w (i − j)² + b|, and −softplus(w_h · x_i) |i − j|."""
    (tmp_path / "program.py").write_text(PROGRAM)
    printed = processes.run(tmp_path / "program.py", PYTHONPATH=PATH).stdout.splitlines()
    distances = [abs(i - j) for i in range(5) for j in range(5)]
    slope = math.log1p(math.exp(4))
    equations = (lambda d: -abs(2.0 * d**2 - 3), lambda d: -slope * d)
    for line, equation in zip(printed, equations, strict=True):
        assert [*map(float, line.split())] == pytest.approx([*map(equation, distances)])
