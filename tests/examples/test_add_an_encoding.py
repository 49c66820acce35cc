"""The example of an encoding outside the package, trained by the real command."""

import math

import pytest
import torch

from examples.shared.results import read_results
from examples.study import benchmark
from examples.study.benchmark_plan import PILOT, RATES, Size
from tests import ROOT, processes
from tests.pages import commands

EXAMPLE = ROOT / "examples" / "add_an_encoding"
#: In a process of its own, since the registry is global and other tests walk it.
PATH = f"{ROOT}:{EXAMPLE}"


def test_readme_command(toy_masked_lm_data, tmp_path):
    ((program, data, *flags),) = commands(EXAMPLE / "README.md", "fairseq-train")
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


def study(name: str, *words: object, tiny: bool = True) -> dict[str, dict]:
    """Run a study with the examples' encodings; the results of its runs."""
    smaller = ["--", "--encoder-layers", "1", "--encoder-embed-dim", "16"] if tiny else []
    own = ("--user-dir", EXAMPLE / "my_encodings")
    done = processes.run(f"examples.{name}", *words, *own, *smaller)
    assert done.returncode == 0, done.stderr
    runs = read_results(words[words.index("--out") + 1])["runs"]
    return {key: run["result"] for key, run in runs.items() if "result" in run}


@pytest.mark.slow
@pytest.mark.usefixtures("forking_python")
def test_studies_take_own_encodings(toy_masked_lm_data, tmp_path):
    names = ("gaussian+gaussian_width=4", "token_slopes")
    small = ("--masked-length", "16", "--masked-updates", "4", "--blocks", "1")
    own = ("--masked-encodings", ",".join(names), "--seeds", "1", "--only", "masked/*")
    found = study("study.length", toy_masked_lm_data, "--out", tmp_path / "length", *small, *own)
    gaussian, slopes = (found[f"masked/{name}/1"] for name in names)
    # Two numbers for each of 4 heads; a vector of 16 for each in the one layer.
    assert slopes["parameters"] - gaussian["parameters"] == 4 * 16 - 4 * 2
    drawn = ("--updates", "1", "--only", "gaussian", "token_slopes")
    found = study("gallery.build", "--out", tmp_path / "gallery", *drawn, tiny=False)
    assert found.keys() == {"gaussian", "token_slopes"}
    assert '<article id="token_slopes">' in (tmp_path / "gallery/gallery.html").read_text()


def test_benchmark_tunes_encodings_that_are_in_no_plan(toy_masked_lm_data, tmp_path):
    planned = []

    def execute(runs):
        planned.extend((run.settings["encoding"], run.settings["lr"]) for run in runs)
        (tmp_path / "results.json").write_text('{"plan": {}, "runs": {}}')

    size = Size("small", PILOT, PILOT, ("t5",), (1,))
    words = [str(toy_masked_lm_data), "--out", str(tmp_path), "--encodings", "t5,rope,fire"]
    benchmark.tune(benchmark.parse(words), execute, size)
    assert sorted(planned) == [(name, rate) for name in ("fire", "t5") for rate in RATES]
