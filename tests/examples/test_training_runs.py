"""The trainings of the studies: a kill, and the guards of fairseq-train."""

import os
import shutil
import signal
import subprocess
import sys

import pytest

from examples.shared.logs import read_log
from examples.shared.results import read_results, rows
from examples.study import encodings
from examples.study.training import Recipe, fixed_flags
from tests import ROOT, processes
from tests.processes import wait_for_the_lock

#: After --; the last of two equal flags counts.
SMALLER = (
    *("--encoder-layers", "1", "--encoder-embed-dim", "16", "--encoder-ffn-embed-dim", "16"),
    *("--encoder-attention-heads", "2", "--distributed-world-size", "1"),
)


#: Two encodings; a validation and a checkpoint after each epoch, of 7 updates.
PROGRAM = """
from argparse import ArgumentParser
from pathlib import Path

from examples.shared import runner, script
from examples.study.training import Recipe, training_run

def main():
    parser = ArgumentParser()
    parser.add_argument("data", type=Path)
    args = runner.arguments(parser, None, "program")
    recipe = Recipe("tupe_roberta_tiny", 84, 4, 16, 32, 1e-3)
    with runner.runner(args, {}, lambda out: None) as execute:
        execute([training_run(args, name, recipe, name, 1) for name in ("learned", "none")])

script.run(main)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("forking_python")
def test_killed_study_goes_on(toy_masked_lm_data, tmp_path):
    (program := tmp_path / "program.py").write_text(PROGRAM)
    words = (toy_masked_lm_data, "--out", out := tmp_path / "out", "--", *SMALLER)
    killed = processes.Program(program, *words)
    try:
        killed.until((out / "learned/checkpoint_last.pt").exists)
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
    wait_for_the_lock(out)
    processes.run(program, *words).check_returncode()
    made = {row["encoding"]: row for row in rows(read_results(out))}
    for name, row in made.items():
        assert list(row["losses"]) == [*map(str, range(7, 85, 7))], name
    log = (out / "learned/log.txt").read_text()
    assert log.count("Loaded checkpoint") == 1, "went on from a checkpoint"
    # learned has a table of 16 positions of width 16, and fairseq's two rows before them.
    assert made["learned"]["parameters"] - made["none"]["parameters"] == 18 * 16
    shutil.rmtree(out)
    failed = processes.run(program, *words, "--no-such-flag")
    assert "2 runs failed: learned, none" in failed.stderr


def test_timed_training_has_the_guards_of_fairseq_train(toy_masked_lm_data, tmp_path):
    """Under its own name: a missing --restore-file is refused."""
    flags = fixed_flags(Recipe("tupe_roberta_tiny", 4, 1, 32, 32, 1e-3))
    own = [*SMALLER, "--position-encoding", "none", "--save-dir", str(tmp_path / "none")]
    # fairseq's thread that reads ahead can abort a process that ends so early.
    own += ["--data-buffer-size", "0"]

    def timed_train(*more: object):
        words = [toy_masked_lm_data, *flags, *own, *more]
        return processes.run("examples.shared.timed", "train", *words)

    missing = timed_train("--max-update", "2", "--restore-file", str(tmp_path / "nowhere.pt"))
    assert missing.returncode == 1
    last = missing.stderr.strip().splitlines()[-1]
    assert last.startswith("error: --restore-file is"), missing.stderr
    assert "nowhere.pt" in last
    # A new interpreter: logging depends on the order in which it imports fairseq's modules.
    words = [sys.executable, "-m", "examples.shared.timed", "train", toy_masked_lm_data, *flags]
    words += [*own, "--max-update", "2", "--log-format", "simple", "--log-interval", "1"]
    with (tmp_path / "log.txt").open("w") as log:
        subprocess.run(words, stdout=log, cwd=ROOT, check=True)
    entries = read_log(tmp_path / "log.txt")
    assert [kind for kind, _ in entries] == ["train_inner", "train_inner", "valid", "clock"]
    assert entries[-1][1]["updates"] == 1


def test_options_of_encodings():
    name, options = encodings.options_of("tupe_r+tie_cls+num_buckets=8")
    assert (name, options) == ("tupe_r", {"tie_cls": True, "num_buckets": 8})
    assert encodings.flags_of("tupe_r+tie_cls=false+num_buckets=8") == [
        *("--position-encoding", "tupe_r", "--no-tie-cls", "--num-buckets", "8")
    ]
