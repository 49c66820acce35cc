"""The example of an encoding outside the package, trained by the real command."""

from argparse import Namespace

import pytest
import torch

from examples.glue.preprocess import preprocess
from examples.study import benchmark
from examples.study.benchmark_plan import PILOT, RATES, Size
from tests import ROOT, processes
from tests.convert.samples import bert
from tests.fairseq.glue.samples import GLUE, write
from tests.pages import blocks, commands

EXAMPLE = ROOT / "examples" / "add_an_encoding"
FINETUNE = GLUE / "finetune.sh"
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
terms, q = build("token_slopes", 8, 2, 16).build_layer_terms(), torch.ones(1, 2, 5, 4)
terms.u.data[1] = 0.5
print(*terms.relative(None, 5).scores(q, q)[0, 1].flatten().tolist())
"""


def test_equations(tmp_path):
    """Against loops: −|w (i − j)² + b|, and −(q_i · u) |i − j|."""
    (tmp_path / "program.py").write_text(PROGRAM)
    printed = processes.run(tmp_path / "program.py", PYTHONPATH=PATH).stdout.splitlines()
    distances = [abs(i - j) for i in range(5) for j in range(5)]
    equations = (lambda d: -abs(2.0 * d**2 - 3), lambda d: -2.0 * d)
    for line, equation in zip(printed, equations, strict=True):
        assert [*map(float, line.split())] == pytest.approx([*map(equation, distances)])


def test_look_at_it(tmp_path):
    """The page's lines print −(i − j)² / (2 · 4²)."""
    (block,) = blocks(EXAMPLE / "README.md", "python")
    (tmp_path / "program.py").write_text(block)
    printed = processes.run(tmp_path / "program.py", PYTHONPATH=PATH).stdout
    assert "[-0.5000, -0.2812, -0.1250, -0.0312, -0.0000]" in printed


@pytest.mark.slow
def test_commands_that_read_models(tmp_path):
    """A warm start, a figure, a benchmark and GLUE with an encoding outside the package."""
    own = ("--user-dir", EXAMPLE / "my_encodings")
    pytest.importorskip("transformers", reason="transformers is not installed")
    theirs = bert(tmp_path / "bert")
    model = tmp_path / "model"
    out = tmp_path / "out"
    encoding = ("--position-encoding", "gaussian", *own)
    convert = ("scripts/convert_checkpoint.py", "--from", "huggingface", theirs, "--out", model)
    for program, *words in (
        (*convert, *encoding),
        ("scripts/plot_positional_correlations.py", model, "--out", tmp_path / "maps.png", *own),
        (
            *("scripts/benchmark_attention.py", "--encodings", "gaussian", "--lengths", "8"),
            *("--words", "8", "--layers", "1", "--rounds", "1", "--backends", "eager", *own),
        ),
    ):
        done = processes.run(ROOT / program, *words)
        assert done.returncode == 0, done.stderr
    known = processes.run(ROOT / convert[0], "--to", "huggingface", model, "--out", out, *own)
    assert "only the code of encodings in tupe_fairseq is written" in known.stderr
    unknown = processes.run(ROOT / convert[0], "--to", "huggingface", model, "--out", out)
    assert "the known ones are: " in unknown.stderr
    missing = processes.run(ROOT / convert[0], "--user-dir", "nowhere", *convert[1:])
    assert missing.stderr.endswith("--user-dir is 'nowhere', but there is no such folder.\n")


@pytest.mark.slow
def test_glue(bash, tmp_path):
    pytest.importorskip("transformers", reason="transformers is not installed")
    theirs = bert(tmp_path / "bert")
    model = tmp_path / "model"
    own = EXAMPLE / "my_encodings"
    words = ("--from", "huggingface", theirs, "--out", model, "--position-encoding", "gaussian")
    convert = ROOT / "scripts/convert_checkpoint.py"
    processes.run(convert, *words, "--user-dir", own).check_returncode()
    rows = "0|the cat sat|a bird saw it|entailment\n1|a bird|the mat|not_entailment\n"
    text = f"index|sentence1|sentence2|label\n{rows}"
    names = ("train", "dev", "test")
    glue = write(tmp_path / "glue", {f"RTE/{name}.tsv": text for name in names})
    data = tmp_path / "data/RTE-bin"
    data.mkdir(parents=True)
    more = {"max_positions": 40, "lowercase": None, "workers": 1}
    preprocess(Namespace(glue=glue, task="RTE", bpe=model, out=data, **more))
    short = ("optimization.max_update=1", "lr_scheduler.warmup_updates=0", "dataset.num_workers=0")
    run = (data, model / "model.pt", tmp_path / "run", *short)
    assert "is 'gaussian', but the known ones are" in bash(FINETUNE, *run).stderr
    done = bash(FINETUNE, "--user-dir", own, *run)
    assert done.returncode == 0, done.stdout + done.stderr
    out = ("--data", data.parent, "--out", tmp_path / "s.zip", tmp_path / "run/model")
    done = processes.run("examples.glue.predict", *out, "--user-dir", own)
    # It has predicted; the leaderboard wants 3,000 sentences.
    assert "RTE.tsv: 2 predictions, but the test set has 3,000 examples" in done.stderr


def test_benchmark_tunes_encodings_that_are_in_no_plan(toy_masked_lm_data, tmp_path):
    planned = []

    def execute(runs):
        planned.extend((run.settings["encoding"], run.settings["lr"]) for run in runs)
        (tmp_path / "results.json").write_text('{"plan": {}, "runs": {}}')

    size = Size("small", PILOT, PILOT, ("t5",), (1,))
    words = [str(toy_masked_lm_data), "--out", str(tmp_path), "--encodings", "t5,rope,fire"]
    benchmark.tune(benchmark.parse(words), execute, size)
    assert sorted(planned) == [(name, rate) for name in ("fire", "t5") for rate in RATES]
