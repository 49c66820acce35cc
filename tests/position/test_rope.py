"""Rotary positions in a part of the dimensions, of the layers, and loaded beyond their length."""

import pytest
import torch
from fairseq import checkpoint_utils

from tests.attention.cases import normal
from tests.fairseq.decoder.samples import stock, targets
from tests.fairseq_commands import pretrain
from tests.tolerances import assert_close
from tupe_fairseq import TupeRobertaModel, UsageError, build_position_encoding


def rope(max_positions=16, num_layers=1, **options):
    return build_position_encoding("rope", 16, 2, max_positions, num_layers=num_layers, **options)


@pytest.mark.parametrize("every", [2, 3, 4])
def test_layers_without_rotation_are_those_of_transformers(every):
    from transformers import Llama4TextConfig, SmolLM3Config

    encoding = rope(num_layers=9, rope_skip_every=every)
    q = normal(1, 2, 5, 8, seed=0)
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


def turned(encoding, length=16):
    """What becomes of (1, 0) in each pair at each position: cosine and sine."""
    q = torch.tensor([1.0, 0.0]).repeat(1, 2, length, 4)
    return encoding.rotate(q, q, q)[0][0, 0].unflatten(-1, (-1, 2))


def test_layers_with_a_window_have_their_own_base():
    """As ModernBERT's, by its modules of rotary positions."""
    from transformers import ModernBertConfig
    from transformers.models.modernbert import modeling_modernbert as modernbert

    shape = {"num_layers": 4, "attention_window": 4, "global_every": 3}
    encoding = rope(rope_theta=160000.0, rope_theta_local=10000.0, **shape)
    config = ModernBertConfig(hidden_size=16, num_attention_heads=2)
    given = torch.zeros(1, 16, 16), torch.arange(16)[None]
    for layer in range(4):
        if hasattr(config, "layer_types"):
            theirs = modernbert.ModernBertRotaryEmbedding(config)
            cos, _ = theirs(*given, config.layer_types[layer])
        else:  # transformers 4
            cos, _ = modernbert.ModernBertAttention(config, layer).rotary_emb(*given)
        ours = turned(encoding.at(layer))[..., 0]
        torch.testing.assert_close(ours, cos[0, :, :4], rtol=1e-5, atol=1e-5)


PART = {"rope_fraction": 0.5, "rope_proportional": True}
LINEAR = {"rope_scaling": "linear", "rope_scaling_factor": 2.0}


@pytest.mark.parametrize(("options", "kept"), [(PART, PART), (LINEAR, {})])
def test_layers_with_a_window_rotate_the_same_dimensions_without_scaling(options, kept):
    shape = {"num_layers": 2, "attention_window": 4, "global_every": 2}
    encoding = rope(rope_theta_local=10.0, **options, **shape)
    assert torch.equal(turned(encoding.at(1)), turned(rope(rope_theta=10.0, **kept)))
    assert torch.equal(turned(encoding.at(0)), turned(rope(**options)))


DYNAMIC = {"rope_scaling": "dynamic", "rope_scaling_factor": 4.0, "rope_original_positions": 8}


def test_frequencies_of_each_pass_follow_its_length():
    encoding = rope(**DYNAMIC)
    scaling = rope(**DYNAMIC).scaling
    before = turned(encoding)
    for length in (5, 8, 9, 16):
        found = turned(encoding.for_pass(length, torch.device("cpu")), length)
        frequencies = scaling.frequencies(10000.0, 8, length)
        angles = torch.arange(length).double()[:, None] * frequencies
        expected = torch.view_as_real(torch.polar(torch.ones_like(angles), angles))
        assert_close(found, expected * scaling.magnitude)
    assert torch.equal(turned(encoding), before), "a pass changes no other"


def test_frequencies_by_length_cannot_be_decoded():
    """transformers issue 25104: stored keys were rotated for another length."""
    how = {"position_encoding": "rope", "decoder_attention_heads": 2, **DYNAMIC}
    model = stock("tupe_transformer_lm", **how).eval()
    words = targets(1, 12)
    assert model(words)[0].isfinite().all()
    with pytest.raises(UsageError, match="decoding stores the keys of earlier tokens") as raised:
        model.decoder(words[:, :1], incremental_state={})
    assert "\n" not in str(raised.value)
