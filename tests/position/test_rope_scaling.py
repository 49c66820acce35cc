"""Scaled frequencies of rotary positions against transformers', and what is refused."""

import pytest
import torch

from tupe_fairseq import UsageError, build_position_encoding
from tupe_fairseq.position.rope_scaling import ROPE_SCALINGS, frequencies

#: Factor, trained length, base, head width, fraction that rotates, length of the pass.
SETTINGS = [
    (1.0, 128, 10000.0, 64, 1.0, 128),
    (2.0, 128, 10000.0, 64, 1.0, 256),
    (4.0, 128, 10000.0, 32, 1.0, 512),
    (4.0, 512, 10000.0, 64, 0.5, 300),
    (8.0, 512, 500000.0, 128, 1.0, 4096),
    (1.5, 2048, 10000.0, 80, 0.25, 2049),
    (16.0, 4096, 160000.0, 64, 1.0, 65536),
    (32.0, 8192, 500000.0, 128, 0.75, 8192),
    (3.0, 64, 100.0, 16, 1.0, 190),
    (2.5, 1000, 1000.0, 48, 1.0, 5000),
    # Yarn's last dimension is beyond the last pair, or even the width.
    (4.0, 4096, 100.0, 32, 1.0, 8192),
    (2.0, 65536, 10.0, 32, 1.0, 70000),
]
every_setting = pytest.mark.parametrize("index", range(len(SETTINGS)))


def theirs(kind, index):
    """Frequencies and magnitude of transformers."""
    utils = pytest.importorskip("transformers.modeling_rope_utils")
    from transformers import PretrainedConfig

    factor, original, theta, width, fraction, length = SETTINGS[index]
    config = PretrainedConfig(
        rope_theta=theta,
        hidden_size=4 * width,
        num_attention_heads=4,
        partial_rotary_factor=fraction,
        max_position_embeddings=original,
    )
    config.rope_scaling = {
        "rope_type": kind,
        "factor": factor,
        "original_max_position_embeddings": original,
    }
    return utils.ROPE_INIT_FUNCTIONS[kind](config, "cpu", seq_len=length)


@every_setting
@pytest.mark.parametrize("kind", ["linear", "dynamic", "yarn"])
def test_frequencies_equal_transformers(kind, index):
    factor, original, theta, width, fraction, length = SETTINGS[index]
    scaling = ROPE_SCALINGS[kind](factor, original)
    expected, magnitude = theirs(kind, index)
    found = scaling.frequencies(theta, int(width * fraction), length)
    torch.testing.assert_close(found, expected.double(), rtol=1e-6, atol=0)
    assert scaling.magnitude == pytest.approx(magnitude, rel=1e-6)


@every_setting
@pytest.mark.parametrize("scaled", [False, True], ids=["unscaled", "scaled"])
def test_the_highest_frequencies_of_the_head_equal_transformers(index, scaled):
    """p-RoPE: `proportional` there, which divides by the factor as `linear` does."""
    utils = pytest.importorskip("transformers.modeling_rope_utils")
    if "proportional" not in utils.ROPE_INIT_FUNCTIONS:
        pytest.skip("this version of transformers has no proportional frequencies")
    factor, _, theta, width, fraction, _ = SETTINGS[index]
    expected, _ = theirs("proportional", index)
    options = {"rope_scaling": "linear", "rope_scaling_factor": factor} if scaled else {}
    part = {"rope_fraction": fraction, "rope_proportional": fraction < 1}
    encoding = rope(2, width, rope_theta=theta, **part, **options)
    # The angles of position 1, of the pairs that rotate; transformers has 0 for the others.
    rotation = encoding.rotation
    found = torch.atan2(rotation.sin(torch.float64)[1], rotation.cos(torch.float64)[1])
    expected = expected.double() * (1 if scaled else factor)
    torch.testing.assert_close(found, expected[: len(found)], rtol=1e-6, atol=0)
    assert not expected[len(found) :].any()


@every_setting
def test_ntk_is_a_larger_base(index):
    """transformers has no ntk. The slowest pair turns s times slower, the fastest as before."""
    factor, original, theta, width, _, _ = SETTINGS[index]
    found = ROPE_SCALINGS["ntk"](factor, original).frequencies(theta, width)
    base = theta * factor ** (width / (width - 2))
    expected = [base ** (-2 * d / width) for d in range(width // 2)]
    torch.testing.assert_close(found.tolist(), expected, rtol=1e-12, atol=0)
    plain = frequencies(theta, width)
    assert found[0] == plain[0] == 1
    assert (plain[-1] / found[-1]).item() == pytest.approx(factor)


def rope(max_positions=512, width=64, **options):
    return build_position_encoding("rope", 2 * width, 2, max_positions, **options)


def test_the_factor_is_the_length_over_the_trained_one():
    scaling = rope(rope_scaling="yarn", rope_original_positions=128).scaling
    assert (scaling.factor, scaling.original) == (4.0, 128)
    shorter = rope(64, rope_scaling="yarn", rope_original_positions=128).scaling
    assert (shorter.factor, shorter.original) == (1.0, 128)


def test_the_trained_length_is_the_length_over_the_factor():
    scaling = rope(rope_scaling="yarn", rope_scaling_factor=8.0).scaling
    assert (scaling.factor, scaling.original) == (8.0, 64)
    assert rope(1, rope_scaling="linear", rope_scaling_factor=8.0).scaling.original == 2
    # 170.67, to the nearest.
    assert rope(rope_scaling="yarn", rope_scaling_factor=3.0).scaling.original == 171


def scaled(kind, factor=4.0, **options):
    return {"rope_scaling": kind, "rope_scaling_factor": factor, **options}


REFUSED = [
    (scaled("spiral"), "--rope-scaling is 'spiral', but .*"),
    (scaled("yarn", factor=0.5), "--rope-scaling-factor .* is 0.5"),
    (scaled("linear", factor=-2.0), "--rope-scaling-factor .* is -2"),
    (scaled("linear", factor=float("nan")), "--rope-scaling-factor .* is nan"),
    (scaled("linear", factor=float("inf")), "--rope-scaling-factor .* is inf"),
    (scaled("yarn", factor=None), "--rope-scaling needs --rope-scaling-factor"),
    ({"rope_scaling_factor": 2.0}, "-factor is 2.0, but there is no --rope-scaling"),
    (scaled("yarn", rope_original_positions=0), "--rope-original-positions .* 2, but is 0"),
    (scaled("yarn", rope_theta=1.0), "yarn needs --rope-theta above 1"),
    (scaled("yarn", rope_values=True), "--rope-values rotates values"),
    (scaled("ntk", rope_fraction=0.05), "need 4 rotated dimensions, but there are 2"),
    ({"rope_fraction": 0.0}, "--rope-fraction must .* but is 0.0"),
    ({"rope_fraction": 1.5}, "--rope-fraction must .* but is 1.5"),
    ({"rope_fraction": 0.01}, "--rope-fraction must .* but is 0.01"),
]


@pytest.mark.parametrize(("options", "expected"), REFUSED)
def test_refused_in_one_line(options, expected):
    with pytest.raises(UsageError, match=expected) as raised:
        rope(**options)
    assert "\n" not in str(raised.value)
