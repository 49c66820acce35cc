"""examples/study/compare_encodings.py: rounds, a kill, the table."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from examples.shared.jobs import read_log
from examples.study import compare_encodings as compare
from examples.study import comparison, training
from examples.study.training import fixed_flags
from tests import processes
from tests.scripts import ROOT
from tupe_fairseq import UsageError

#: After --; the last of two equal flags counts.
SMALLER = (
    *("--encoder-layers", "1", "--encoder-embed-dim", "16", "--encoder-ffn-embed-dim", "16"),
    *("--encoder-attention-heads", "2", "--distributed-world-size", "1"),
)


def arguments(data: Path, out: Path, *more: str) -> list[str]:
    """Two encodings, two rounds of two updates."""
    own = ("--encodings", "learned,none", "--updates", "4", "--rounds", "2", "--validations", "1")
    return [str(data), "--out", str(out), *own, "--workers", "2", *more, "--", *SMALLER]


def wait_until(there, seconds: float = 120) -> None:
    for _ in range(int(seconds / 0.1)):
        if there():
            return
        time.sleep(0.1)
    raise AssertionError("waited in vain")


@pytest.mark.slow
@pytest.mark.usefixtures("forking_python")
def test_killed_comparison_goes_on(toy_masked_lm_data, tmp_path, capsys, monkeypatch):
    out = tmp_path / "out"
    words = arguments(toy_masked_lm_data, out)
    script = ROOT / "examples/study/compare_encodings.py"
    killed = processes.Program(script, *words)
    try:
        wait_until((out / "comparison.md").exists)
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
    assert "after 2 updates" in (out / "comparison.md").read_text()
    # As a kill leaves it while fairseq copies.
    whole = (out / "none/checkpoint_last.pt").read_bytes()
    (out / "none/checkpoint_last.pt").write_bytes(whole[: len(whole) // 2])

    monkeypatch.setattr(training, "run_module", processes.run_module)
    compare.main(words)
    assert "after 4 updates" in capsys.readouterr().out
    made = json.loads((out / "comparison.json").read_text())["results"]
    assert list(made) == ["learned", "none"]
    for name, result in made.items():
        assert list(result["losses"]) == ["2", "4"]
        assert list(result["seconds"]) == ["2", "4"]
        assert comparison.updates_done(out / name) == 4
        log = (out / name / "log.txt").read_text()
        assert log.count("@ 2 updates)") == 1, "went on from the first round"
    # learned has a table of 32 positions of width 16, and fairseq's two rows before them.
    assert made["learned"]["parameters"] - made["none"]["parameters"] == 34 * 16
    assert (out / "comparison.png").stat().st_size

    before = (out / "learned/log.txt").read_text()
    table = (out / "comparison.md").read_bytes()
    (out / "comparison.md").unlink()
    compare.main(arguments(toy_masked_lm_data, out, "--report"))
    assert (out / "comparison.md").read_bytes() == table
    compare.main(words)
    assert (out / "learned/log.txt").read_text() == before, "nothing is left to train"
    with pytest.raises(UsageError, match="holds a run with other settings"):
        compare.main(arguments(toy_masked_lm_data, out, "--lr", "1"))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--encodings", "tupe"), "the known ones are"),
        (("--rounds", "3"), "must divide --updates 4, but is 3"),
        (("--workers", "0"), "must be at least 1"),
        (("--updates", "0"), "must divide --updates 0"),
    ],
)
def test_mistakes(more, message, toy_masked_lm_data, tmp_path):
    with pytest.raises(UsageError, match=message):
        compare.main(arguments(toy_masked_lm_data, tmp_path / "out", *more))
    with pytest.raises(UsageError, match=r"holds no dict\.txt"):
        compare.main(arguments(tmp_path, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_failed_training_is_told_in_one_line(toy_masked_lm_data, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "run_module", processes.run_module)
    words = arguments(toy_masked_lm_data, tmp_path, "--encodings", "none")
    with pytest.raises(UsageError, match=r"training none failed: .*--no-such-flag"):
        compare.main([*words, "--no-such-flag"])


def test_timed_training_has_the_guards_of_fairseq_train(toy_masked_lm_data, tmp_path):
    """Under its own name: a missing --restore-file is refused."""
    training = compare.training_of(compare.parse(arguments(toy_masked_lm_data, tmp_path)))
    own = ["--position-encoding", "none", "--save-dir", str(tmp_path / "none")]

    def timed_train(*more: object):
        words = [toy_masked_lm_data, *fixed_flags(training), *own, *more]
        return processes.run("examples.study.timed_train", *words)

    missing = timed_train("--max-update", "2", "--restore-file", str(tmp_path / "nowhere.pt"))
    assert missing.returncode == 1
    last = missing.stderr.strip().splitlines()[-1]
    assert last.startswith("error: --restore-file is"), missing.stderr
    assert "nowhere.pt" in last
    trained = timed_train("--max-update", "2", "--log-format", "simple", "--log-interval", "1")
    assert trained.returncode == 0, trained.stderr
    assert 'timed_train | clock | {"updates": 1, ' in trained.stdout, "it logs as JSON itself"


# ---------------------------------------------------------------- the table


def result(losses: dict[int, float], seconds: dict[int, float], parameters: int | None = 1000):
    return {"losses": losses, "seconds": seconds, "parameters": parameters}


def rows(results) -> list[str]:
    return comparison.table(results, "Settings.").splitlines()[4:]


def test_table_compares_at_the_last_update_that_all_have_reached():
    made = {
        "learned": result({2: 9.0, 4: 7.0}, {2: 1.0, 4: 3.0, 6: 2.0}),
        "t5": result({2: 8.0, 4: 7.5, 6: 1.0}, {2: 2.0, 4: 4.0}),
    }
    assert "after 4 updates" in comparison.table(made, "")
    assert rows(made) == [
        "| `learned` | 1,000 | 7.000 | 1.00 (1.00 to 1.00) |",
        "| `t5` | 1,000 | 7.500 | 0.62 (0.50 to 0.75) |",
    ]


def test_table_says_what_was_not_run():
    made = {"t5": result({2: 8.0}, {2: 1.0}), "rope": result({}, {}, None)}
    assert "after 2 updates" in comparison.table(made, "")
    assert rows(made) == [
        "| `t5` | 1,000 | 8.000 | not run |",
        "| `rope` | not run | not run | not run |",
    ]


def test_log_is_read_in_its_order(tmp_path):
    log = tmp_path / "log.txt"
    log.write_text(
        'x | INFO | train_inner | {"loss": "9.5", "num_updates": "2"}\n'
        "x | INFO | fairseq.trainer | something else\n"
        'x | INFO | valid | {"valid_loss": "8.5", "valid_num_updates": "2"}\n'
        'timed_train | clock | {"updates": 1, "seconds": 0.5}\n'
        'x | INFO | valid | {"valid_loss": "8'
    )
    kinds = [kind for kind, _ in read_log(log)]
    assert kinds == ["train_inner", "valid", "clock"]
    summary = comparison.summarise(tmp_path)
    assert summary == {"parameters": None, "losses": {2: 8.5}, "seconds": {2: 0.5}}
    assert read_log(tmp_path / "none.txt") == []
