"""What a user does wrong: one line that names the argument, its value and the way out."""

import os
import shutil
import subprocess

import pytest
import torch

from tests import processes, toy_data
from tests.fairseq.checkpoints.test_safe_loading import Calls
from tests.fairseq_commands import PLUGIN, SMALL, finetune, pretrain, train_lm, train_translation
from tupe_fairseq import UsageError
from tupe_fairseq.fairseq.commands import running

DATA = {
    pretrain: "toy_masked_lm_data",
    train_lm: "toy_masked_lm_data",
    train_translation: "toy_translation_data",
}


def label(value: object) -> str:
    """For the ids of tests: flags, or the name of a function."""
    return value if isinstance(value, str) else getattr(value, "__name__", "")


@pytest.fixture(scope="module")
def translator(toy_translation_data, tmp_path_factory):
    flags = ("--max-update", 1, "--position-encoding", "learned")
    return train_translation(toy_translation_data, tmp_path_factory.mktemp("m"), *flags)


def told(error: pytest.ExceptionInfo) -> str:
    """The message of the UsageError, which fairseq's trainer may have wrapped."""
    found = error.value
    while not isinstance(found, UsageError):
        found = found.__cause__ or found.__context__
        assert found is not None, error.value
    message = str(found)
    assert "\n" not in message
    return message


@pytest.fixture
def failed(request, tmp_path):
    """Trains with these flags; returns the message of the error."""

    def run(train, *flags, data=None) -> str:
        data = data or request.getfixturevalue(DATA[train])
        with pytest.raises(Exception) as error:  # noqa: PT011  (fairseq's trainer may wrap it)
            train(data, tmp_path / "model", *flags)
        return told(error)

    return run


@pytest.mark.parametrize(
    ("train", "flags", "parts"),
    [
        (pretrain, "--restore-file nowhere.pt", ["--restore-file is 'nowhere.pt'", "scratch"]),
        (pretrain, "--max-positions 16", ["64 tokens", "16"]),
        (
            train_translation,
            "--position-encoding deberta --deberta-emd",
            ["--deberta-emd is True", "masked language models only"],
        ),
        *(
            (train, "--quant-noise-scalar 0.1", ["--quant-noise-scalar is 0.1", "needs a GPU"])
            for train in (pretrain, train_translation, train_lm)
        ),
        (train_translation, "--encoder-learned-pos", ["--position-encoding learned"]),
        (train_translation, "--no-token-positional-embeddings", ["--position-encoding none"]),
        (train_translation, "--no-cross-attention --cross-self-attention", ["--cross-self-a"]),
        (train_translation, "--offload-activations", ["--checkpoint-activations"]),
        (train_translation, "--position-encoding none --attention-backend flash", ["later tok"]),
        (train_translation, "--decoder-attention-heads 5", ["5 heads", "32"]),
        (train_lm, "--character-embeddings", ["--character-embeddings"]),
        (train_lm, "--decoder-learned-pos", ["--position-encoding learned"]),
        (train_lm, "--max-target-positions 16", ["--max-target-positions is 16", "32 tokens"]),
    ],
    ids=label,
)
def test_flags(failed, train, flags, parts):
    message = failed(train, *flags.split())
    assert all(part in message for part in parts), message


@pytest.mark.parametrize("flag", ["--bf16", "--memory-efficient-bf16"])
@pytest.mark.parametrize("train", [pretrain, train_translation, train_lm], ids=label)
def test_bf16_of_fairseq_train(request, tmp_path, train, flag):
    """fairseq then asks for a TPU; its own error is that None has no "xla_device"."""
    data = request.getfixturevalue(DATA[train])
    told = "on a TPU with --bf16, but torch_xla .* use fairseq-hydra-train with common.bf16=true"
    with running("train"), pytest.raises(SystemExit, match=told):
        train(data, tmp_path, flag)


@pytest.mark.parametrize(
    ("train", "flags", "parts"),
    [
        (pretrain, "--position-encoding none", ["'none', which has no parameters"]),
        (pretrain, "--num-buckets 16", ["relative_bias", "(33, 4)", "(17, 4)"]),
        (pretrain, "--encoder-layers 3", ["16 missing", "layers.2", "--arch"]),
        (pretrain, "--encoder-embed-dim 64", ["of another shape", "(32,) instead of (64,)"]),
        (train_translation, "--position-encoding t5", ["'t5'", "relative_bias"]),
        (train_translation, "--max-source-positions 40", ["source-positions is 40", "has 32 p"]),
        (train_translation, "--max-target-positions 40", ["target-positions is 40", "has 32 p"]),
        (train_translation, "--decoder-layers 3", ["missing", "decoder.layers.2"]),
    ],
    ids=label,
)
def test_checkpoint_of_another_model(failed, toy_checkpoint, translator, train, flags, parts):
    trained = toy_checkpoint
    if train is train_translation:
        trained = translator
        flags = f"--position-encoding learned {flags}"
    message = failed(train, "--restore-file", trained, *flags.split())
    assert all(part in message for part in parts), message


def test_dictionary_of_another_size(failed, tmp_path, toy_checkpoint, translator):
    symbols = toy_data.dictionary(f"w{i}" for i in range(50))
    for split in ("train", "valid"):
        toy_data.write_split(tmp_path / "data", split, ["w1 w2 w3"] * 40, symbols)
    message = failed(pretrain, "--restore-file", toy_checkpoint, data=tmp_path / "data")
    assert "55 symbols" in message
    assert "205" in message
    pairs = toy_data.write_translation(tmp_path / "pairs", joined=False)
    flags = ("--position-encoding", "learned", "--restore-file", translator)
    message = failed(train_translation, *flags, data=pairs)
    assert "205 symbols" in message
    assert "204" in message
    message = failed(train_translation, "--share-all-embeddings", data=pairs)
    assert "(204 and 205 symbols): preprocess with --joined-dictionary" in message


def test_labels_that_are_not_there(failed, toy_sentence_data, tmp_path):
    shutil.copytree(toy_sentence_data["single"], tmp_path / "data")
    for file in (tmp_path / "data" / "label").glob("train.*"):
        file.unlink()
    assert "label/" in failed(finetune, "--num-classes", 2, data=tmp_path / "data")


def test_a_trained_length_that_is_not_given(failed, toy_checkpoint):
    """fairseq-train builds the model before it reads the checkpoint, which records it."""
    flags = ("--extend-positions", "toeplitz", "--max-positions", 128)
    message = failed(pretrain, *flags, "--restore-file", toy_checkpoint)
    assert message.startswith("--trained-positions is 128, but the checkpoint has 64 positions")


# ---------------------------------------------------------------- under fairseq's commands


@pytest.mark.usefixtures("under_fairseq_train")
@pytest.mark.parametrize("flag", ["--restore-file", "--finetune-from-model"])
def test_hostile_checkpoint(toy_masked_lm_data, tmp_path, toy_checkpoint, flag):
    trace = tmp_path / "it-ran"
    path = tmp_path / "hostile.pt"
    state = torch.load(toy_checkpoint, weights_only=True)
    state["extra_state"]["more"] = Calls(os.system, f"touch {trace}")
    torch.save(state, path)
    message = r"^error: .*hostile.pt cannot be loaded: it holds [^\n]*$"
    with pytest.raises(SystemExit, match=message):
        pretrain(toy_masked_lm_data, tmp_path / "m", flag, path)
    assert not trace.exists()


@pytest.mark.usefixtures("under_fairseq_train")
@pytest.mark.parametrize("flag", ["--restore-file", "--finetune-from-model"])
def test_checkpoint_of_another_encoding_without_parameters(
    toy_masked_lm_data, tmp_path, flag, caplog
):
    """State dicts of `rope` and `alibi` have the same names; the recorded setting differs."""
    rope = pretrain(toy_masked_lm_data, tmp_path / "rope", "--position-encoding", "rope")
    with pytest.raises(SystemExit, match=r"^error: --position-encoding is 'alibi'.*with 'rope'"):
        pretrain(toy_masked_lm_data, tmp_path / "m", "--position-encoding", "alibi", flag, rope)
    again = ("--position-encoding", "rope", "--rope-theta", 500, "--max-update", 9, flag, rope)
    assert pretrain(toy_masked_lm_data, tmp_path / "m", *again).is_file()
    warned = [line for line in caplog.messages if "was trained with other options" in line]
    assert len(warned) == 1
    assert warned[0].endswith(
        "--rope-theta is 500.0, but was 10000.0 (to keep it, pass --rope-theta 10000.0)"
    )


def fairseq_train(*flags: object) -> subprocess.CompletedProcess:
    """The real command."""
    small = ["--optimizer", "adam", "--batch-size", 8, "--max-update", 1, *SMALL]
    return processes.run("fairseq_cli.train", "--user-dir", PLUGIN, "--cpu", *small, *flags)


def test_commands_end_in_one_line(toy_masked_lm_data, tmp_path, toy_checkpoint):
    """No traceback, exit status 1, nothing written over: for a flag, a checkpoint, and data."""
    task = ["--task", "masked_lm", "--criterion", "masked_lm", "--tokens-per-sample", 64]
    truncated = tmp_path / "truncated.pt"
    data = tmp_path / "data"
    truncated.write_bytes(toy_checkpoint.read_bytes()[:5000])
    shutil.copytree(toy_masked_lm_data, data)
    (data / "train.idx").write_bytes((data / "train.idx").read_bytes()[:-3])
    before = toy_checkpoint.read_bytes()
    for words, part in (
        ([toy_masked_lm_data, "--num-buckets", 13], "--num-buckets must be even"),
        ([toy_masked_lm_data, "--restore-file", truncated], "truncated.pt"),
        ([toy_masked_lm_data, "--position-encoding", "t5"], "'t5'"),
        ([data], "train.idx is cut off"),
    ):
        folder = toy_checkpoint.parent if "t5" in words else tmp_path / "new"
        ended = fairseq_train(*words, *task, "--save-dir", folder)
        assert ended.returncode == 1
        assert "Traceback" not in ended.stderr
        last = ended.stderr.strip().splitlines()[-1]
        assert last.startswith("error: ")
        assert part in last
    assert toy_checkpoint.read_bytes() == before
