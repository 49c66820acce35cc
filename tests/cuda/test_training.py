"""fairseq-train on a GPU: --fp16, --bf16 and --amp, with every encoding."""

import pytest
import torch

from tests.cuda.device import DEVICE
from tests.tolerances import assert_losses_close

pytest.importorskip("fairseq")

from tests import fairseq_commands as commands
from tupe_fairseq.position import POSITION_ENCODINGS

pytestmark = pytest.mark.gpu
every_encoding = pytest.mark.parametrize("name", list(POSITION_ENCODINGS))
PRECISIONS = {"fp16": ("--fp16", "--fp16-init-scale", 4), "bf16": ("--bf16",), "amp": ("--amp",)}
UPDATES = ("--max-update", 4)


@pytest.fixture(autouse=True)
def on_the_device(monkeypatch):
    """Without fairseq's --cpu on a GPU; --bf16 as `common.bf16=true` of fairseq-hydra-train.

    fairseq-train takes --bf16 for the wish to train on a TPU.
    """
    if DEVICE != "cuda":
        return
    composed = commands.configuration

    def configuration(arguments):
        arguments.tpu = False
        return composed(arguments)

    flags = tuple(flag for flag in commands.COMMON if flag != "--cpu")
    monkeypatch.setattr(commands, "COMMON", flags)
    monkeypatch.setattr(commands, "configuration", configuration)


@pytest.fixture(scope="module")
def exact():
    """Validation losses of models trained in fp32, by encoding."""
    return {}


def needs_gpu(precision):
    if DEVICE != "cuda" and precision != "amp":
        pytest.skip(f"fairseq's --{precision} needs a GPU")


def loss_of(name, data, folder, *flags):
    """Validation loss after a few updates; as a language model where the encoding is causal."""
    flags = ("--position-encoding", name, *UPDATES, *flags)
    if POSITION_ENCODINGS[name].causal_only:
        trained = commands.train_lm(data, folder, *flags)
    else:
        # Compilation would take longer than all else; tests/cuda/test_encoders.py compiles.
        trained = commands.pretrain(data, folder, "--no-compile-layers", *flags)
    return torch.load(trained, weights_only=True)["extra_state"]["val_loss"]


@pytest.mark.parametrize("precision", PRECISIONS)
@every_encoding
def test_half_precision(toy_masked_lm_data, tmp_path, exact, name, precision):
    """The validation loss is that of training in fp32."""
    needs_gpu(precision)
    still = ("--dropout", 0, "--attention-dropout", 0)
    if name not in exact:
        exact[name] = loss_of(name, toy_masked_lm_data, tmp_path / "exact", *still)
    flags = (*still, *PRECISIONS[precision])
    found = loss_of(name, toy_masked_lm_data, tmp_path / precision, *flags)
    assert_losses_close(found, exact[name])


@pytest.mark.parametrize("precision", PRECISIONS)
def test_translation(toy_translation_data, tmp_path, precision):
    needs_gpu(precision)
    flags = ("--position-encoding", "tupe_r", *PRECISIONS[precision])
    trained = commands.train_translation(toy_translation_data, tmp_path, *flags)
    assert 0 < torch.load(trained, weights_only=True)["extra_state"]["val_loss"] < 10
