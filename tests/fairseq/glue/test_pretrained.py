"""What examples/glue/pretrained.py reads from a checkpoint, as overrides for hydra."""

from argparse import Namespace

import pytest
import torch

from examples.glue.pretrained import overrides
from tupe_fairseq import UsageError


@pytest.fixture
def data(tmp_path):
    """A folder as preprocess_glue.sh makes it, as far as it is read here."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "task.json").write_text('{"task": "RTE", "max_positions": 64}')
    return folder


@pytest.fixture
def overrides_of(data, tmp_path):
    """The overrides for a checkpoint of `tupe_roberta` with these settings."""

    def read(encoding, *chosen, max_positions=64, **more):
        settings = {"position_encoding": encoding, "max_positions": max_positions, **more}
        model = {"arch": "tupe_roberta", **settings}
        torch.save({"model": {}, "cfg": {"model": model}}, tmp_path / "model.pt")
        return overrides(data, tmp_path / "model.pt", *([list(chosen)] if chosen else []))

    return read


def test_overrides_keep_windows(overrides_of):
    """A window has no parameters, so that nothing else shows that it is missing."""
    window = {"attention_window": 4, "global_every": 3, "rope_theta_local": 100.0}
    found = set(overrides_of("rope", **window))
    assert {"+model.attention_window=4", "+model.global_every=3"} <= found
    assert "+model.rope_theta_local=100.0" in found


def test_models_with_token_types_separate_sentences_once(overrides_of):
    once = "task.separator_token=null"
    assert once in overrides_of("learned", type_vocab_size=2)
    assert once not in overrides_of("learned", type_vocab_size=1)
    given = overrides_of("learned", "task.separator_token=2", type_vocab_size=2)
    assert not any("separator" in each for each in given)


@pytest.mark.parametrize("hydra", [True, False])
def test_stock_roberta_is_learned(hydra, data, tmp_path):
    model = {"arch": "roberta_large", "encoder_layers": 24, "max_positions": 512}
    settings = {"cfg": {"model": model}} if hydra else {"args": Namespace(**model)}
    torch.save({"model": {}, **settings}, tmp_path / "model.pt")
    found = overrides(data, tmp_path / "model.pt")
    assert found[:3] == [
        "model._name=tupe_roberta",
        "model.position_encoding=learned",
        "+model.encoder_layers=24",
    ]


def test_data_longer_than_the_model_is_refused(overrides_of):
    match = r"up to 64 tokens, .* has 32 positions: .* 32, or .* \+model.extend_positions=toep"
    with pytest.raises(UsageError, match=match):
        overrides_of("t5", max_positions=32)


@pytest.mark.parametrize("recorded", [None, 24])
def test_longer_data_extend_a_model(overrides_of, recorded):
    """By the positions that were trained: all of the checkpoint's, or those that it records."""
    model = {"trained_positions": recorded, "extend_positions": "toeplitz" if recorded else None}
    chosen = "+model.extend_positions=toeplitz"
    found = overrides_of("tupe_r", chosen, max_positions=32, **model)
    assert f"+model.trained_positions={recorded or 32}" in found
    assert "task.max_positions=64" in found
    assert not any("extend_positions" in each for each in found), "hydra takes a key once"


def test_longer_data_with_an_encoding_of_any_length(data, tmp_path):
    model = {"arch": "tupe_roberta", "position_encoding": "shaw", "max_positions": 32}
    model |= {"relative_clip": 15}
    torch.save({"model": {}, "cfg": {"model": model}}, tmp_path / "model.pt")
    found = overrides(data, tmp_path / "model.pt", ["+model.extend_positions=hierarchical"])
    assert {"+model.relative_clip=15", "task.max_positions=64"} <= set(found)
    assert not any("trained_positions" in each for each in found), "not an option of `shaw`"


def test_a_model_that_was_extended_stays_so(overrides_of):
    model = {"trained_positions": 32, "extend_positions": "toeplitz", "max_positions": 128}
    found = set(overrides_of("tupe_r", **model))
    assert {"+model.extend_positions=toeplitz", "+model.trained_positions=32"} <= found
    assert "task.max_positions=128" in found


@pytest.mark.parametrize(
    "value",
    [
        "gelu\ncommon.user_dir=/tmp",
        "gelu task.data=x",
        "${oc.env:HOME}",
        "{a: 1}",
        "{'a': 1}",
        '{"a": "${oc.env:HOME}"}',
        '{"a": 1,\n}',
        [1],
        "",
    ],
)
def test_a_setting_cannot_be_more_than_one(overrides_of, value):
    """Each line is an override; fairseq-hydra-train imports what common.user_dir names."""
    with pytest.raises(UsageError, match=r"model.pt has an invalid activation_fn: "):
        overrides_of("rope", activation_fn=value)
