"""The example of an encoding outside the package, trained by the real command."""

import math

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


def test_term_that_depends_on_the_query(tmp_path):
    """Against loops: −softplus(w_h · x_i) |i − j|."""
    program = tmp_path / "program.py"
    program.write_text(
        "import my_encodings, torch; from tupe_fairseq import build_position_encoding as build;"
        "terms = build('token_slopes', 8, 2, 16).build_layer_terms(); x = torch.ones(1, 3, 8);"
        "terms.w.data[1] = 0.5; q = torch.zeros(1, 2, 3, 4);"
        "print(*terms.content(q, q, x, None)[0, 1].flatten().tolist())"
    )
    printed = processes.run(program, PYTHONPATH=PATH)
    scores = [float(number) for number in printed.stdout.split()]
    slope = math.log1p(math.exp(4))
    expected = [-slope * abs(i - j) for i in range(3) for j in range(3)]
    torch.testing.assert_close(torch.tensor(scores), torch.tensor(expected))


def test_equation(tmp_path):
    """Against loops: score_ij = −|w (i − j)² + b|."""
    program = tmp_path / "program.py"
    program.write_text(
        "import my_encodings, torch; from tupe_fairseq import build_position_encoding as build;"
        "e = build('gaussian', 8, 2, 16, gaussian_width=0.5); e.b.data.fill_(-3);"
        "print(*e.attention_bias(5, 5).dense()[1].flatten().tolist())"
    )
    printed = processes.run(program, PYTHONPATH=PATH)
    scores = [float(number) for number in printed.stdout.split()]
    expected = [-abs(2.0 * (i - j) ** 2 - 3) for i in range(5) for j in range(5)]
    torch.testing.assert_close(torch.tensor(scores), torch.tensor(expected))
