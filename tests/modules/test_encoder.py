"""`TUPEEncoder`, used without fairseq, and `Encoder`."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.tolerances import (
    assert_close,
    assert_gradients_close,
    assert_not_zero,
    assert_zero,
)
from tupe_fairseq import (
    TUPEConfig,
    TUPEEncoder,
    UsageError,
    build_position_encoding,
)
from tupe_fairseq.analysis import positional_correlations
from tupe_fairseq.attention import share_attention
from tupe_fairseq.modules.encoder import Encoder

SMALL = TUPEConfig(
    num_layers=2, num_heads=2, d_model=16, max_len=12, dropout=0.0, num_buckets=8, max_distance=6
)


def build(config=SMALL, **changes):
    """An encoder whose parameters are large enough for positions to matter."""
    encoder = TUPEEncoder(replace(config, **changes))
    return enlarged(encoder)


@torch.no_grad()
def enlarged(encoder):
    """Weights and biases from N(0, 0.3²); LayerNorm parameters are perturbed by it."""
    generator = torch.Generator().manual_seed(1)
    for name, parameter in encoder.named_parameters():
        noise = 0.3 * torch.randn(parameter.shape, generator=generator)
        parameter.copy_(parameter + noise if "layer_norm" in name else noise)
    return encoder


def vectors(batch=2, length=12, width=16):
    return torch.randn(batch, length, width, generator=torch.Generator().manual_seed(2))


def gradients(encoder, output):
    loss = (output * vectors(*output.shape)).sum()
    parameters = dict(encoder.named_parameters())
    found = torch.autograd.grad(loss, list(parameters.values()))
    return dict(zip(parameters, found, strict=True))


def test_defaults():
    told = TUPEConfig(
        num_layers=6,
        num_heads=8,
        d_model=128,
        max_len=256,
        dropout=0.1,
        expansion_factor=1,
        relative_bias=True,
        bidirectional_bias=True,
        num_buckets=32,
        max_distance=128,
    )
    assert told == TUPEConfig()
    assert told.d_head == 16


def test_shapes():
    encoder = TUPEEncoder(TUPEConfig())
    x = torch.randn(8, 100, 128)
    assert encoder(x).shape == (8, 100, 128)
    assert len(encoder.layers) == 6
    assert encoder.layers[0].fc1.out_features == 128


def test_config_reaches_every_part():
    encoder = TUPEEncoder(replace(SMALL, dropout=0.25, expansion_factor=3))
    assert encoder.layers[0].fc1.out_features == 48
    assert {m.p for m in encoder.modules() if isinstance(m, nn.Dropout)} == {0.0, 0.25}
    assert {layer.self_attn.dropout for layer in encoder.layers} == {0.25}


def test_order_matters_only_through_positions():
    """Without positions, reversed inputs give reversed outputs; with positions they do not."""
    encoder, x = build(), vectors()
    away_from_reversed = encoder(x.flip(1)).flip(1) - encoder(x)
    assert_not_zero(away_from_reversed)
    for parameter in encoder.embed_positions.parameters():
        nn.init.zeros_(parameter)
    assert_close(encoder(x.flip(1)).flip(1), encoder(x))


def test_tupe_a_has_no_relative_table():
    with_table = dict(build().named_parameters())
    without = dict(build(relative_bias=False).named_parameters())
    table = "embed_positions.relative_bias.weight"
    assert with_table.keys() - without.keys() == {table}
    assert with_table[table].shape == (8, 2)


def test_cls_is_tied_by_default():
    tied = positional_correlations(build(), 12)
    untied = positional_correlations(build(untie_cls=True), 12)
    assert tied.shape == untied.shape == (2, 12, 12)
    assert_not_zero(tied[:, 0].std(dim=-1))
    assert_zero(untied[:, 0].std(dim=-1))


@pytest.mark.parametrize("bidirectional", [True, False], ids=["both", "left"])
def test_bias_on_one_side_or_both(bidirectional):
    """One-sided: all keys to the right share bucket 0 with the query's own position."""
    encoder = build(bidirectional_bias=bidirectional)
    nn.init.zeros_(encoder.embed_positions.q_proj.weight)
    nn.init.zeros_(encoder.embed_positions.q_proj.bias)
    bias = positional_correlations(encoder, 12)
    own = encoder.embed_positions.relative_bias.weight[0]
    right = torch.ones(12, 12).triu(1).bool()
    assert_close(bias[:, 0, 0], own)
    assert (bias[:, right] == own[:, None]).all() == (not bidirectional)
    assert (bias[:, 1:, 0] != own[:, None]).all()


@pytest.mark.parametrize("changes", [{}, {"relative_bias": False}, {"untie_cls": True}], ids=str)
@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_padding_does_not_change_words(backend, changes):
    encoder = build(attention_backend=backend, **changes)
    x, padding_mask = vectors(), torch.arange(12) >= torch.tensor([[7], [12]])
    output = encoder(x, padding_mask)
    assert_close(output[:1, :7], encoder(x[:1, :7]))
    assert_close(output[1:], encoder(x[1:]))
    changed = torch.where(padding_mask[:, :, None], 100 * x, x)
    assert_close(encoder(changed, padding_mask)[~padding_mask], output[~padding_mask])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_heads": 3}, "invalid num_heads: 3; it must divide d_model 16"),
        ({"num_heads": 0}, "invalid num_heads: 0; it must divide d_model 16"),
        ({"num_buckets": 13}, "--num-buckets must be even, but is 13"),
        ({"max_distance": 2}, "--max-distance must be larger than 2.*, but is 2"),
        (
            {"attention_backend": "fast"},
            "is 'fast', but the known ones are: auto, blocked, eager, flash, sdpa",
        ),
    ],
)
def test_invalid_configs(changes, message):
    with pytest.raises(UsageError, match=message):
        build(**changes)


def test_odd_number_of_buckets_on_one_side():
    assert build(num_buckets=5, bidirectional_bias=False)(vectors()).isfinite().all()


def test_left_padding_is_refused():
    padding_mask = torch.arange(12) < torch.tensor([[0], [3]])
    with pytest.raises(UsageError, match="pad on the right"):
        build()(vectors(), padding_mask)


@pytest.mark.parametrize("inner", [[4], [3, 4, 5], [1, 8]])
def test_padding_between_tokens_is_refused(inner):
    """Padding is taken out by the number of tokens alone: results would be wrong."""
    encoder = TUPEEncoder(TUPEConfig(num_layers=1, num_heads=2, d_model=8)).eval()
    mask = torch.zeros(2, 10, dtype=torch.bool)
    mask[1, inner] = True
    with pytest.raises(UsageError, match="between the tokens of a sequence: move it behind"):
        encoder(torch.randn(2, 10, 8), mask)


@pytest.mark.parametrize("backend", ["auto", "blocked", "eager", "sdpa"])
def test_an_empty_batch(backend):
    config = TUPEConfig(num_layers=1, d_model=16, num_heads=2, attention_backend=backend)
    encoder = TUPEEncoder(config)
    assert encoder(torch.randn(0, 3, 16)).shape == (0, 3, 16)


def test_sequences_without_tokens_are_refused():
    encoder = TUPEEncoder(TUPEConfig(num_layers=1, d_model=16, num_heads=2))
    with pytest.raises(UsageError, match="a sequence has no tokens"):
        encoder(torch.randn(2, 0, 16))


def test_too_long_is_refused():
    with pytest.raises(UsageError, match=r"13 tokens, but .*max_len\) is 12"):
        build()(vectors(length=13))


@pytest.mark.parametrize("untie_cls", [True, False], ids=["untied", "tied"])
@pytest.mark.parametrize("relative_bias", [True, False], ids=["tupe_r", "tupe_a"])
def test_gradients_reach_every_parameter(relative_bias, untie_cls):
    """Except parameters that add the same number to all scores of a query: softmax cancels it."""
    encoder = build(relative_bias=relative_bias, untie_cls=untie_cls)
    found = gradients(encoder, encoder(vectors()))
    positions = found.pop("embed_positions.weight")
    if untie_cls:
        theta1, positions = positions[0], positions[1:]
        assert_close(theta1, torch.zeros(16))
    else:
        assert_close(found.pop("embed_positions.k_proj.bias"), torch.zeros(16))
    for name, gradient in found.items():
        if name.endswith("self_attn.k_proj.bias"):
            assert_close(gradient, torch.zeros(16))
        else:
            assert_not_zero(gradient)
    for row in positions:
        assert_not_zero(row)


def encoder_of(name="tupe_a", **arguments):
    encoding = build_position_encoding(name, 16, 2, 12)
    arguments = {"num_layers": 2, "ffn_dim": 16, "dropout": 0.0, **arguments}
    return enlarged(Encoder(encoding, **arguments, attention_dropout=arguments["dropout"]))


def test_checkpointed_activations_give_the_same_gradients():
    """With dropout: the recomputed layers must use the same mask."""
    found = []
    for checkpoint_activations in (False, True):
        encoder = encoder_of(dropout=0.3, checkpoint_activations=checkpoint_activations)
        torch.manual_seed(3)
        output = encoder.train()(vectors())
        found.append((output, gradients(encoder, output)))
    assert_close(found[1][0], found[0][0])
    assert_gradients_close(found[1][1], found[0][1], torch.float32)


def test_layerdrop_skips_layers_in_training_only():
    encoder, x = encoder_of(layerdrop=1.0), vectors()
    assert_close(encoder.train()(x), x)
    assert_close(encoder.eval()(x), encoder_of(layerdrop=0.0).eval()(x))


def test_kept_states():
    encoder, x = encoder_of(), vectors()
    output, states, _ = encoder.encode(x, keep_states=True)
    assert len(states) == 3
    assert_close(states[0], x)
    assert_close(states[2], output)


@pytest.mark.parametrize("normalize_before", [True, False], ids=["pre_ln", "post_ln"])
def test_place_of_norms(normalize_before):
    encoder, x = encoder_of(num_layers=1, normalize_before=normalize_before), vectors()
    layer = encoder.layers[0]
    shared = share_attention(encoder.embed_positions, x)
    attend_norm, feed_norm = layer.self_attn_layer_norm, layer.final_layer_norm

    def attend(x):
        return layer.self_attn(x, shared)[0]

    def feed_forward(x):
        return layer.fc2(F.gelu(layer.fc1(x)))

    if normalize_before:
        hidden = x + attend(attend_norm(x))
        expected = encoder.layer_norm(hidden + feed_forward(feed_norm(hidden)))
    else:
        assert encoder.layer_norm is None
        hidden = attend_norm(x + attend(x))
        expected = feed_norm(hidden + feed_forward(hidden))
    assert_close(encoder(x), expected)


WITHOUT_FAIRSEQ = """
import sys
sys.modules["fairseq"] = sys.modules["fairseq_cli"] = None  # as if not installed
import torch
from tupe_fairseq import TUPEConfig, TUPEEncoder
assert TUPEEncoder(TUPEConfig())(torch.randn(8, 100, 128)).shape == (8, 100, 128)
assert not [name for name in sys.modules if name.startswith(("fairseq.", "fairseq_cli."))]
assert "tupe_fairseq.models" not in sys.modules
"""


def test_needs_torch_only():
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_FAIRSEQ], cwd=root, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert not done.stdout, "the import must not print"
