"""Rotary positions in a part of the dimensions, of the layers, and loaded beyond their length."""

from __future__ import annotations

import pytest
import torch
from fairseq import checkpoint_utils

from tests.attention.cases import normal
from tests.integration.commands import pretrain
from tupe_fairseq import TupeRobertaModel, build_position_encoding


def rope(max_positions=16, num_layers=1, **options):
    return build_position_encoding("rope", 16, 2, max_positions, num_layers=num_layers, **options)


def test_dimensions_beyond_the_fraction_stay():
    q, k, v = (normal(2, 2, 5, 8, seed=seed) for seed in range(3))
    turned = rope(rope_fraction=0.5).rotate(q, k, v, 3)
    assert torch.equal(turned[0][..., 4:], q[..., 4:])
    assert torch.equal(turned[2], v)
    # The frequencies are those of a head of width 4.
    narrow = build_position_encoding("rope", 8, 2, 16)
    expected = narrow.rotate(q[..., :4], k[..., :4], v[..., :4], 3)
    assert torch.equal(turned[0][..., :4], expected[0])
    assert torch.equal(turned[1][..., :4], expected[1])


@pytest.mark.parametrize("every", [2, 3, 4])
def test_layers_without_rotation_are_those_of_transformers(every):
    from transformers import Llama4TextConfig, SmolLM3Config

    encoding, q = rope(num_layers=9, rope_skip_every=every), normal(1, 2, 5, 8, seed=0)
    rotates = [not torch.equal(encoding.at(layer).rotate(q, q, q, 1)[0], q) for layer in range(9)]
    for config in (SmolLM3Config, Llama4TextConfig):
        theirs = config(num_hidden_layers=9, no_rope_layer_interval=every, no_rope_layers=None)
        assert rotates == [bool(each) for each in theirs.no_rope_layers]


def test_without_options_every_layer_is_the_encoding_itself():
    encoding = rope(num_layers=3)
    assert all(encoding.at(layer) is encoding for layer in range(3))


SCALED = {"max_positions": 128, "rope_scaling": "yarn"}


@pytest.fixture(scope="module")
def checkpoint(toy_masked_lm_data, tmp_path_factory):
    """Trained at 64 positions."""
    flags = ("--position-encoding", "rope", "--max-update", 2)
    return pretrain(toy_masked_lm_data, tmp_path_factory.mktemp("rope"), *flags)


def scaling_of(model):
    return model.encoder.sentence_encoder.embed_positions.scaling


def test_checkpoints_record_the_trained_length(checkpoint):
    models, cfg = checkpoint_utils.load_model_ensemble([str(checkpoint)], SCALED)
    assert cfg.model.rope_original_positions == 64
    scaling = scaling_of(models[0])
    assert (scaling.factor, scaling.original) == (2.0, 64)


def test_an_older_checkpoint_follows_the_factor(checkpoint):
    overrides = {**SCALED, "rope_original_positions": None, "rope_scaling_factor": 4.0}
    model = checkpoint_utils.load_model_ensemble([str(checkpoint)], overrides)[0][0]
    assert (scaling_of(model).factor, scaling_of(model).original) == (4.0, 32)


def test_the_hub_scales(checkpoint, toy_masked_lm_data):
    hub = TupeRobertaModel.from_pretrained(
        checkpoint.parent, checkpoint.name, toy_masked_lm_data, **SCALED
    )
    assert scaling_of(hub.model).factor == 2
    tokens = torch.randint(4, 100, (1, 128))
    assert hub.extract_features(tokens).isfinite().all()
