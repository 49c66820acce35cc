"""The contract of every registered encoding: it runs in fairseq and is documented."""

import inspect

import pytest
import torch

from tests import ROOT
from tests.fairseq_commands import load, parameters, pretrain, train_lm
from tests.tolerances import assert_trained_alike
from tupe_fairseq.position import POSITION_ENCODINGS, build_position_encoding

#: Of the scope of a file, so that the tests of one encoding follow each other and share its model.
every_encoding = pytest.mark.parametrize("name", list(POSITION_ENCODINGS), scope="module")


def causal(name):
    return POSITION_ENCODINGS[name].causal_only


def train(name, data, save_dir, *flags):
    """Three updates with layerdrop: a masked or, for a causal encoding, a causal model.

    Both take 64 tokens.
    """
    side = "decoder" if causal(name) else "encoder"
    limit = () if "--max-update" in flags else ("--max-update", 3)
    flags = ("--position-encoding", name, f"--{side}-layerdrop", 0.3, *limit, *flags)
    if causal(name):
        return train_lm(data, save_dir, "--tokens-per-sample", 64, *flags)
    return pretrain(data, save_dir, *flags)


def stack_of(model):
    return model.decoder if hasattr(model, "decoder") else model.encoder.sentence_encoder


def length(name, most):
    """The override of the longest input."""
    return {"max_target_positions" if causal(name) else "max_positions": most}


@pytest.fixture(scope="module")
def trained(name, toy_masked_lm_data, tmp_path_factory):
    """A checkpoint."""
    return train(name, toy_masked_lm_data, tmp_path_factory.mktemp(name))


@pytest.fixture(scope="module")
def model(trained):
    """The model of the checkpoint; tests only read it."""
    return load(trained)


@every_encoding
def test_declares_the_tables_with_a_row_for_each_token(name):
    """Conversion gives the rows of these tables the order of the tokens."""
    sizes = {"bidirectional": not causal(name), "vocab_size": 211, "num_layers": 2}
    encoding = build_position_encoding(name, 32, 4, 64, **sizes)
    found = {n for n, value in encoding.state_dict().items() if value.shape[:1] == (211,)}
    assert found == set(encoding.token_tables)


@every_encoding
def test_trains_saves_and_reloads(trained, model, name):
    tokens = torch.randint(4, 200, (2, 33))
    assert torch.equal(model(tokens)[0], load(trained)(tokens)[0])
    saved = parameters(trained)
    assert saved.keys() == model.state_dict().keys()
    buffers = {name for name, _ in model.named_buffers()} & saved.keys()
    assert [key.rpartition(".")[2] for key in buffers] == ["version"], (
        "constant tables are not saved"
    )


@pytest.mark.parametrize("name", ["tupe_r", "rope", "deberta", "xpos"])
def test_trains_on_modern_layers(toy_masked_lm_data, tmp_path, name):
    """Two updates with the layers of `tupe_roberta_modern_*`."""
    flags = ["--max-update", 2, "--gated-ffn", "geglu", "--no-norm-bias", "--no-attention-bias"]
    flags += ["--no-ffn-bias", "--no-first-attention-norm"]
    flags.append("--decoder-normalize-before" if causal(name) else "--encoder-normalize-before")
    saved = parameters(train(name, toy_masked_lm_data, tmp_path, *flags))
    stack = "decoder.layers." if causal(name) else "encoder.sentence_encoder.layers."
    layers = [key for key in saved if key.startswith(stack) and ".layer_terms." not in key]
    assert layers
    assert not any(key.endswith(".bias") for key in layers)
    assert all(value.isfinite().all() for value in saved.values())


@pytest.mark.parametrize("name", ["tupe_r", "cape", "shaw"], scope="module")
def test_activation_checkpointing_changes_nothing(toy_masked_lm_data, tmp_path, trained, name):
    """With dropout and layerdrop; all other encodings: tests/huggingface/test_models.py."""
    saving = train(name, toy_masked_lm_data, tmp_path, "--checkpoint-activations")
    assert_trained_alike(parameters(saving), parameters(trained))


@every_encoding
def test_extension_of_length(trained, model, name):
    """Beyond the 64 positions it was trained with, and only when asked for if that adds rows."""
    longer = load(trained, extend_positions="hierarchical", **length(name, 100))
    tokens = torch.randint(4, 200, (1, 100))
    assert longer(tokens)[0].isfinite().all()
    torch.testing.assert_close(longer(tokens[:, :64])[0], model(tokens[:, :64])[0])
    if stack_of(longer).embed_positions.position_tables():
        with pytest.raises(ValueError, match="--extend-positions hierarchical"):
            load(trained, **length(name, 100))
    else:
        assert stack_of(load(trained, **length(name, 100))).max_positions() == 100


@every_encoding
def test_is_told(name):
    """Its own file and a reference; test_readme checks the row of the table."""
    encoding = POSITION_ENCODINGS[name]
    module = inspect.getmodule(encoding)
    assert module.__name__.startswith("tupe_fairseq.position.")
    reference = module.__name__.rsplit(".", 1)[1]
    assert (ROOT / "tests" / "reference" / f"{reference}.py").is_file()
    assert inspect.getdoc(encoding)
