"""examples/study/compare_encodings.py: a kill, the table."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from examples.shared.logs import read_log
from examples.shared.results import read_results, rows
from examples.study import compare_encodings as compare
from examples.study import comparison
from examples.study.training import Recipe, fixed_flags
from tests import ROOT, processes
from tests.processes import wait_for_the_lock, wait_until
from tupe_fairseq import UsageError

#: After --; the last of two equal flags counts.
SMALLER = (
    *("--encoder-layers", "1", "--encoder-embed-dim", "16", "--encoder-ffn-embed-dim", "16"),
    *("--encoder-attention-heads", "2", "--distributed-world-size", "1"),
)


def arguments(data: Path, out: Path, *more: str) -> list[str]:
    """Two encodings; a validation and a checkpoint after each second update."""
    own = ("--encodings", "learned,none", "--updates", "24", "--validations", "12")
    return [str(data), "--out", str(out), *own, *more, "--", *SMALLER]


@pytest.mark.slow
@pytest.mark.usefixtures("forking_python")
def test_killed_comparison_goes_on(toy_masked_lm_data, tmp_path, monkeypatch, forking_python):
    out = tmp_path / "out"
    words = arguments(toy_masked_lm_data, out)
    killed = processes.Program(ROOT / "examples/study/compare_encodings.py", *words)
    last = out / "learned/1/checkpoint_last.pt"
    try:
        wait_until(last.exists)
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
    wait_for_the_lock(out)
    monkeypatch.setattr(sys, "executable", forking_python)
    compare.main(words)
    made = {row["encoding"]: row for row in rows(read_results(out))}
    for name, row in made.items():
        assert list(row["losses"]) == [*map(str, range(2, 25, 2))], name
    log = (out / "learned/1/log.txt").read_text()
    assert log.count("Loaded checkpoint") == 1, "went on from a checkpoint"
    # learned has a table of 32 positions of width 16, and fairseq's two rows before them.
    assert made["learned"]["parameters"] - made["none"]["parameters"] == 34 * 16
    table = (out / "report.md").read_bytes()
    assert (out / "losses.png").stat().st_size
    (out / "report.md").unlink()
    comparison.report(out)
    assert (out / "report.md").read_bytes() == table
    with pytest.raises(UsageError, match="other settings"):
        compare.main(arguments(toy_masked_lm_data, out, "--lr", "1"))
    with pytest.raises(UsageError, match="1 runs failed: t5/1"):
        compare.main([*arguments(toy_masked_lm_data, out, "--encodings", "t5"), "--no-such-flag"])


def test_timed_training_has_the_guards_of_fairseq_train(toy_masked_lm_data, tmp_path):
    """Under its own name: a missing --restore-file is refused."""
    flags = fixed_flags(Recipe("tupe_roberta_tiny", 4, 1, 32, 32, 1e-3))
    own = [*SMALLER, "--position-encoding", "none", "--save-dir", str(tmp_path / "none")]

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


def test_table_has_the_lowest_loss_first_and_what_was_not_run():
    def run(encoding, **result):
        settings = {"encoding": encoding, "seed": 1}
        return {"settings": settings, **({"result": result} if result else {})}

    runs = [
        run("learned", parameters=1000, losses={"2": 9.0, "10": 7.5}, seconds=1.0),
        run("rope"),
        run("t5", parameters=900, losses={"2": 8.0, "10": 7.0}, seconds=2.0),
    ]
    lines = comparison.table({"runs": dict(enumerate(runs))})
    assert lines[2:] == [
        "| `t5` | 1 | 900 | 7.000 | 0.50 |",
        "| `learned` | 1 | 1,000 | 7.500 | 1.00 |",
        "| `rope` | 1 | not run | not run | not run |",
    ]
