"""What a user does wrong: one line that names the argument, its value and the way out."""

import os
import pickle
import shutil
import subprocess
import sys

import pytest
import torch

from tests import processes
from tests.fairseq_commands import PLUGIN, SMALL, finetune, pretrain
from tests.toy_data import dictionary, write_split
from tupe_fairseq import UsageError


@pytest.fixture(scope="module")
def checkpoint(toy_masked_lm_data, tmp_path_factory):
    return pretrain(toy_masked_lm_data, tmp_path_factory.mktemp("pretrained"), "--max-update", 2)


def told(error: pytest.ExceptionInfo) -> str:
    """The message of the UsageError, which fairseq's trainer may have wrapped."""
    found = error.value
    while not isinstance(found, UsageError):
        found = found.__cause__ or found.__context__
        assert found is not None, error.value
    message = str(found)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (["--position-encoding", "rotary"], ["'rotary'", "learned", "tupe_a", "tupe_r"]),
        (["--attention-backend", "flash3"], ["'flash3'", "auto", "eager", "sdpa"]),
        (["--num-buckets", 13], ["--num-buckets must be even", "13"]),
        (["--num-buckets", 2], ["--num-buckets must be at least 4", "2"]),
        (["--max-distance", 4], ["--max-distance must be larger than 8", "4"]),
        (["--encoder-attention-heads", 5], ["5 heads", "32"]),
        (["--tie-cls", "--position-encoding", "t5"], ["--tie-cls", "t5"]),
        (["--restore-file", "nowhere.pt"], ["--restore-file", "'nowhere.pt'", "from scratch"]),
        (["--max-positions", 16], ["64 tokens", "16"]),
    ],
    ids=lambda value: str(value[0]) if isinstance(value, list) else "",
)
def test_flags(toy_masked_lm_data, tmp_path, flags, parts):
    with pytest.raises(UsageError) as error:
        pretrain(toy_masked_lm_data, tmp_path, *flags)
    assert all(part in told(error) for part in parts), told(error)


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (["--position-encoding", "t5"], ["'t5'", "relative_bias"]),
        (["--position-encoding", "none"], ["'none', which has no parameters"]),
        (["--max-positions", 128], ["--max-positions is 128", "64"]),
        (["--num-buckets", 16], ["relative_bias", "(33, 4)", "(17, 4)"]),
        (["--encoder-layers", 3], ["16 missing", "layers.2", "--arch"]),
        (["--encoder-ffn-embed-dim", 48], ["of another shape", "fc1"]),
        (["--encoder-embed-dim", 64], ["of another shape", "(32,) instead of (64,)"]),
    ],
    ids=lambda value: str(value[0]) if isinstance(value, list) else "",
)
def test_checkpoint_of_another_model(toy_masked_lm_data, tmp_path, checkpoint, flags, parts):
    with pytest.raises(Exception) as error:  # noqa: PT011  (fairseq's trainer wraps it)
        pretrain(toy_masked_lm_data, tmp_path, "--restore-file", checkpoint, *flags)
    assert all(part in told(error) for part in parts), told(error)


def test_dictionary_of_another_size(tmp_path, checkpoint):
    symbols = dictionary(f"w{i}" for i in range(50))
    for split in ("train", "valid"):
        write_split(tmp_path / "data", split, ["w1 w2 w3"] * 40, symbols)
    with pytest.raises(Exception) as error:  # noqa: PT011
        pretrain(tmp_path / "data", tmp_path / "model", "--restore-file", checkpoint)
    assert "55 symbols" in told(error)
    assert "205" in told(error)


def test_labels_that_are_not_there(toy_sentence_data, tmp_path):
    shutil.copytree(toy_sentence_data["single"], tmp_path / "data")
    for file in (tmp_path / "data" / "label").glob("train.*"):
        file.unlink()
    with pytest.raises(UsageError) as error:
        finetune(tmp_path / "data", tmp_path / "model", "--num-classes", 2)
    assert "label/" in told(error)


class Payload:
    """Runs a command when unpickled."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return os.system, (f"touch {self.trace}",)


@pytest.mark.parametrize("where", ["model", "extra_state", "last_optimizer_state"])
def test_hostile_checkpoint(toy_masked_lm_data, tmp_path, checkpoint, where):
    trace = tmp_path / "it-ran"
    state = torch.load(checkpoint, weights_only=True)
    state[where]["more"] = Payload(trace)
    torch.save(state, tmp_path / "hostile.pt")
    with pytest.raises(pickle.UnpicklingError):
        pretrain(toy_masked_lm_data, tmp_path / "m", "--restore-file", tmp_path / "hostile.pt")
    assert not trace.exists()
    torch.load(tmp_path / "hostile.pt", weights_only=False)
    assert trace.exists(), "the payload of this test does nothing"


@pytest.mark.parametrize("flag", ["--restore-file", "--finetune-from-model"])
@pytest.mark.parametrize("where", ["model", "extra_state", "last_optimizer_state"])
def test_hostile_checkpoint_ends_the_command(
    toy_masked_lm_data, tmp_path, checkpoint, monkeypatch, flag, where
):
    """In one line; in process, as the command would: its name makes its checks run."""
    trace = tmp_path / "it-ran"
    state = torch.load(checkpoint, weights_only=True)
    state[where]["more"] = Payload(trace)
    torch.save(state, tmp_path / "hostile.pt")
    monkeypatch.setattr(sys, "argv", ["fairseq-train"])
    told = r"^error: .*hostile.pt cannot be loaded: it holds [^\n]*$"
    with pytest.raises(SystemExit, match=told):
        pretrain(toy_masked_lm_data, tmp_path / "m", flag, tmp_path / "hostile.pt")
    assert not trace.exists()


@pytest.mark.parametrize("flag", ["--restore-file", "--finetune-from-model"])
def test_checkpoint_of_another_encoding_without_parameters(
    toy_masked_lm_data, tmp_path, monkeypatch, flag
):
    """State dicts of `rope` and `alibi` have the same names; what was recorded tells them."""
    rope = pretrain(toy_masked_lm_data, tmp_path / "rope", "--position-encoding", "rope")
    monkeypatch.setattr(sys, "argv", ["fairseq-train"])
    with pytest.raises(SystemExit, match=r"^error: --position-encoding is 'alibi'.*with 'rope'"):
        pretrain(toy_masked_lm_data, tmp_path / "m", "--position-encoding", "alibi", flag, rope)
    again = ("--position-encoding", "rope", "--rope-theta", 500, "--max-update", 9, flag, rope)
    assert pretrain(toy_masked_lm_data, tmp_path / "m", *again).is_file()


def fairseq_train(*flags: object) -> subprocess.CompletedProcess:
    """The real command."""
    small = ["--optimizer", "adam", "--batch-size", 8, "--max-update", 1, *SMALL]
    return processes.run("fairseq_cli.train", "--user-dir", PLUGIN, "--cpu", *small, *flags)


def test_commands_end_in_one_line(toy_masked_lm_data, tmp_path, checkpoint):
    """No traceback, exit status 1, nothing written over: for a flag, and for a file."""
    task = [toy_masked_lm_data, "--task", "masked_lm", "--criterion", "masked_lm"]
    truncated = tmp_path / "truncated.pt"
    truncated.write_bytes(checkpoint.read_bytes()[:5000])
    for flags, part in (
        (["--num-buckets", 13, "--save-dir", tmp_path / "new"], "--num-buckets must be even"),
        (["--restore-file", truncated, "--save-dir", tmp_path / "new"], "truncated.pt"),
        (["--position-encoding", "t5", "--save-dir", checkpoint.parent], "'t5'"),
    ):
        before = checkpoint.read_bytes()
        ended = fairseq_train(*task, "--tokens-per-sample", 64, *flags)
        assert ended.returncode == 1
        assert "Traceback" not in ended.stderr
        last = ended.stderr.strip().splitlines()[-1]
        assert last.startswith("error: ")
        assert part in last
        assert checkpoint.read_bytes() == before
