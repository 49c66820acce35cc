"""Several processes, started by torchrun: one training, or a clear end."""

import json
import logging
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch

from tests import ROOT, processes
from tests.fairseq_commands import COMMON, FINETUNE, SMALL, finetune, parameters, train
from tests.tolerances import assert_trained_alike
from tupe_fairseq.fairseq.distributed import end_with

SCRIPT = ROOT / "scripts" / "train_distributed.sh"
#: What is the same for any number of ranks: no dropout, whose masks are drawn by each rank.
TASK = (
    *("--task", "masked_lm", "--criterion", "masked_lm", "--tokens-per-sample", 64),
    *("--dropout", 0, "--attention-dropout", 0, "--batch-size", 4, "--adam-eps", 0.001),
    *("--log-format", "json", "--log-interval", 1, "--save-interval-updates", 2),
)


@pytest.fixture(autouse=True)
def logs_of_this_process(caplog):
    """They are compared with those of ranks; a script run before may have set another level."""
    caplog.set_level(logging.INFO)


def alone_flags():
    """What tests of one process share, without what the launcher sets."""
    common = list(COMMON)
    for flag in ("--distributed-world-size", "--ddp-backend"):
        place = common.index(flag)
        del common[place : place + 2]
    return common


def flags_of(data, save_dir, *flags):
    words = (data, *alone_flags(), *TASK, *SMALL, "--save-dir", save_dir, *flags)
    return [str(word) for word in words]


def start(ranks, *flags):
    """torchrun."""
    worker = "tupe_fairseq.fairseq.distributed.worker"
    words = ("--standalone", "--nproc-per-node", ranks, "-m", worker)
    return processes.Program("torch.distributed.run", *words, *flags)


def finished(process):
    ended = process.wait()
    return ended.returncode, ended.stdout, ended.stderr


def losses(text):
    """Training loss after each update, as the json log tells it."""
    lines = re.findall(r'\{"epoch": .*"num_updates".*\}', text)
    told = [json.loads(line) for line in lines]
    return {int(line["num_updates"]): float(line["loss"]) for line in told if "loss" in line}


@pytest.mark.slow
@pytest.mark.usefixtures("forking_python")
def test_two_ranks_are_one_with_twice_the_update_freq(toy_masked_lm_data, tmp_path):
    """Two ranks, then on by one, then by two again: the same as one without interruption.

    An epoch has more updates than that, so each goes on in the midst of its data.
    """

    def run(ranks, name, updates):
        log = tmp_path / f"{name}.log"
        limit = ("--max-update", updates)
        flags = flags_of(toy_masked_lm_data, tmp_path / name, *limit, "--log-file", log)
        if name == "one":
            train(*flags, "--update-freq", 2)
        else:
            status, out, err = finished(start(ranks, *flags, "--update-freq", str(2 // ranks)))
            assert status == 0, err[-2000:]
            assert f"training on {ranks} devices" in out
        return losses(log.read_text())

    one = run(1, "one", 6)
    mixed = run(2, "mixed", 2) | run(1, "mixed", 4) | run(2, "mixed", 6)
    assert mixed.keys() == one.keys() == set(range(1, 7))
    # The log rounds to three decimals.
    assert all(mixed[update] == pytest.approx(loss, abs=0.002) for update, loss in one.items())
    last = "checkpoint_last.pt"
    expected = parameters(tmp_path / "one" / last)
    assert_trained_alike(parameters(tmp_path / "mixed" / last), expected)


@pytest.mark.slow
@pytest.mark.usefixtures("forking_python")
def test_scores_are_of_all_ranks(toy_sentence_data, tmp_path):
    """Validation by two ranks, one of which has a batch less, and by one: the same scores."""
    data = toy_sentence_data["single"]
    choose = ("--best-checkpoint-metric", "mcc", "--maximize-best-checkpoint-metric")
    flags = ("--criterion", "glue_prediction", "--num-classes", 2, *choose, "--log-format", "json")
    trained = finetune(data, tmp_path / "trained", *flags, "--max-epoch", 1)
    again = ("--restore-file", trained, *FINETUNE, "--lr", 0, "--batch-size", 24, *flags)
    finetune(data, tmp_path / "one", *again, "--log-file", tmp_path / "one.log")
    words = [
        *(data, "--task", "sentence_prediction", "--max-positions", 64, "--max-epoch", 1),
        *("--init-token", 0, "--separator-token", 2, "--log-file", tmp_path / "two.log"),
        *("--save-dir", tmp_path / "two", *alone_flags(), *SMALL, *again),
    ]
    status, _, err = finished(start(2, *map(str, words)))
    assert status == 0, err[-2000:]
    alone, together = (scores(tmp_path / f"{name}.log") for name in ("one", "two"))
    assert any(1 < abs(score) < 100 for score in alone.values()), "scores that say nothing"
    assert together == pytest.approx(alone)


def scores(log):
    """The last ones of the validation set."""
    told = json.loads(re.findall(r'\{"epoch": .*"valid_loss".*\}', log.read_text())[-1])
    return {name: float(told[f"valid_{name}"]) for name in ("mcc", "f1", "accuracy")}


def ranks_of(launcher: int) -> dict[int, int]:
    """Ids of the launcher's processes by rank."""
    files = Path(f"/proc/{launcher}/task").glob("*/children")
    pids = [int(pid) for file in files for pid in file.read_text().split()]
    found = {}
    for pid in pids:
        environment = Path(f"/proc/{pid}/environ").read_text().split("\0")
        variables = dict(entry.split("=", 1) for entry in environment if entry)
        if "RANK" in variables:
            found[int(variables["RANK"])] = pid
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("forking_python")
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs Linux's /proc")
def test_a_killed_rank_ends_the_others(toy_masked_lm_data, tmp_path):
    process = start(
        2, *flags_of(toy_masked_lm_data, tmp_path, "--max-update", 100000, "--max-epoch", 100000)
    )
    last = tmp_path / "checkpoint_last.pt"
    process.until(last.exists)
    workers = ranks_of(process.pid)
    os.kill(workers[1], signal.SIGKILL)
    status, _, err = finished(process)
    assert status == 1
    assert "Signal 9 (SIGKILL)" in err
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers.values())
    state = torch.load(last, weights_only=True)
    assert state["optimizer_history"][-1]["num_updates"] >= 2


def test_a_killed_launcher_ends_its_ranks():
    """Or they would train on beside the next run."""
    reading, writing = os.pipe()
    launcher = os.fork()
    if launcher == 0:
        if os.fork() == 0:
            end_with(os.getppid(), every=0.05)
            os.write(writing, b"began")
            time.sleep(600)
            os.write(writing, b"ended late")
            os._exit(0)
        time.sleep(600)
        os._exit(0)
    os.close(writing)
    assert os.read(reading, 100) == b"began"
    os.kill(launcher, signal.SIGKILL)
    os.waitpid(launcher, 0)
    # The end of the pipe comes when the last process that could write into it has ended.
    assert os.read(reading, 100) == b""
    os.close(reading)


@pytest.mark.slow
@pytest.mark.usefixtures("forking_python")
def test_a_mistake_is_told_in_one_line(toy_masked_lm_data, tmp_path):
    """It is found when threads read data, which must not abort the process."""
    missing = tmp_path / "missing.pt"
    process = start(2, *flags_of(toy_masked_lm_data, tmp_path, "--restore-file", missing))
    status, out, err = finished(process)
    assert status == 1
    assert f"error: --restore-file is '{missing}', but no such file" in err
    assert "Traceback" not in err.partition("failed (exitcode: 1)")[0]
    assert re.search(r"^\d{4}-.* \| INFO \| fairseq", out, re.MULTILINE), "as fairseq-train"


#: In place of python: the plugin is installed; tells what torchrun would get.
PYTHON = '[ "$1" = -c ] || echo "$OMP_NUM_THREADS $*"'


@pytest.mark.parametrize(("ranks", "threads"), [(1, 6), (4, 1), (8, 1)])
def test_the_script_calls_torchrun(tmp_path, ranks, threads):
    for name, lines in {"python": PYTHON, "nproc": "echo 6"}.items():
        processes.write_program(tmp_path / name, lines)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ["bash", SCRIPT, str(ranks), "data bin", "--cpu"]
    out = subprocess.run(command, env=environment, capture_output=True, text=True).stdout
    assert out.startswith(f"{threads} -m torch.distributed.run --standalone ")
    words = "-m tupe_fairseq.fairseq.distributed.worker data bin --cpu\n"
    assert out.endswith(f" --nproc-per-node {ranks} {words}")


@pytest.mark.parametrize("words", [(), ("0", "data"), ("none", "data")])
def test_the_script_asks_for_n(bash, words):
    ended = bash(SCRIPT, *words)
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"error: N is '{words[0] if words else ''}'")


def test_the_script_explains_itself(bash):
    assert bash(SCRIPT, "--help").stdout.startswith("Train a model with N processes")
