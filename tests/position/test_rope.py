"""Rotary positions in a part of the dimensions, of the layers, and loaded beyond their length."""

import pytest
import torch
from fairseq import checkpoint_utils

from tests.attention.cases import normal
from tests.decoder.samples import stock, targets
from tests.fairseq_commands import pretrain
from tupe_fairseq import TupeRobertaModel, UsageError, build_position_encoding


def rope(max_positions=16, num_layers=1, **options):
    return build_position_encoding("rope", 16, 2, max_positions, num_layers=num_layers, **options)


@pytest.mark.parametrize("every", [2, 3, 4])
def test_layers_without_rotation_are_those_of_transformers(every):
    from transformers import Llama4TextConfig, SmolLM3Config

    encoding, q = rope(num_layers=9, rope_skip_every=every), normal(1, 2, 5, 8, seed=0)
    rotates = [not torch.equal(encoding.at(layer).rotate(q, q, q, 1)[0], q) for layer in range(9)]
    for config in (SmolLM3Config, Llama4TextConfig):
        theirs = config(num_hidden_layers=9, no_rope_layer_interval=every, no_rope_layers=None)
        assert rotates == [bool(each) for each in theirs.no_rope_layers]


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


def test_layers_with_a_window_have_their_own_base():
    """As ModernBERT's, by its modules of rotary positions."""
    from transformers import ModernBertConfig
    from transformers.models.modernbert import modeling_modernbert as modernbert

    shape = {"num_layers": 4, "attention_window": 4, "global_every": 3}
    encoding = rope(rope_theta=160000.0, rope_theta_local=10000.0, **shape)
    assert [encoding.at(layer) is encoding for layer in range(4)] == [True, False, False, True]
    assert encoding.at(1) is encoding.at(2)
    config = ModernBertConfig(hidden_size=16, num_attention_heads=2)
    given = torch.zeros(1, 16, 16), torch.arange(16)[None]
    for layer in range(4):
        if hasattr(config, "layer_types"):
            theirs = modernbert.ModernBertRotaryEmbedding(config)
            cos, _ = theirs(*given, config.layer_types[layer])
        else:  # transformers 4
            cos, _ = modernbert.ModernBertAttention(config, layer).rotary_emb(*given)
        ours = encoding.at(layer).rotation.cos(torch.float32)
        torch.testing.assert_close(ours, cos[0, :, :4], rtol=1e-5, atol=1e-5)


def test_layers_with_a_window_rotate_the_same_dimensions():
    shape = {"num_layers": 2, "attention_window": 4, "global_every": 2}
    part = {"rope_fraction": 0.5, "rope_proportional": True}
    local = rope(rope_theta_local=10.0, **part, **shape).at(1)
    assert torch.equal(local.rotation.cos.bits, rope(rope_theta=10.0, **part).rotation.cos.bits)


def test_layers_with_a_window_are_not_scaled():
    shape = {"num_layers": 2, "attention_window": 4, "global_every": 2}
    scaled = rope(rope_theta_local=10.0, **shape, rope_scaling="linear", rope_scaling_factor=2.0)
    plain = rope(rope_theta=10.0)
    assert torch.equal(scaled.at(1).rotation.cos.bits, plain.rotation.cos.bits)
    assert not torch.equal(scaled.rotation.cos.bits, plain.rotation.cos.bits)


DYNAMIC = {"rope_scaling": "dynamic", "rope_scaling_factor": 4.0, "rope_original_positions": 8}
SHORT = {"long_factor": [2.0] * 4, "short_factor": [1.5] * 4}
BY_LENGTH = [DYNAMIC, {**DYNAMIC, "rope_scaling": "longrope", "rope_scaling_settings": SHORT}]


@pytest.mark.parametrize("options", BY_LENGTH, ids=["dynamic", "longrope"])
def test_frequencies_of_each_pass_follow_its_length(options):
    encoding, q = rope(**options), normal(1, 2, 16, 8, seed=0)
    before = encoding.rotate(q, q, q)[0]
    for length in (5, 8, 9, 16):
        found = encoding.for_pass(length, q.device).rotate(*[q[:, :, :length]] * 3)[0]
        angles = torch.arange(length).double()[:, None] * encoding.scaling.frequencies(
            10000.0, 8, length
        )
        pairs = torch.view_as_complex(q[:, :, :length].double().unflatten(-1, (-1, 2)))
        size = torch.full_like(angles, encoding.scaling.magnitude)
        expected = torch.view_as_real(pairs * torch.polar(size, angles)).flatten(-2)
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(encoding.rotate(q, q, q)[0], before), "a pass changes no other"


@pytest.mark.parametrize("options", BY_LENGTH, ids=["dynamic", "longrope"])
def test_frequencies_by_length_cannot_be_decoded(options):
    """transformers issue 25104: stored keys were rotated for another length."""
    model = stock("tupe_transformer_lm", position_encoding="rope", **small_head(options)).eval()
    words = targets(1, 12)
    assert model(words)[0].isfinite().all()
    with pytest.raises(UsageError, match="decoding stores the keys of earlier tokens") as raised:
        model.decoder(words[:, :1], incremental_state={})
    assert "\n" not in str(raised.value)


def small_head(options):
    """For heads of width 4."""
    if options is DYNAMIC:
        return options
    halved = {name: values[:2] for name, values in SHORT.items()}
    return {**options, "rope_scaling_settings": halved}
