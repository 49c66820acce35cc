"""TUPE's term continued by distance (--extend-positions toeplitz)."""

import math

import pytest
import torch

from tests.attention.cases import enlarged, normal
from tests.tolerances import assert_close
from tupe_fairseq import UsageError, build_position_encoding
from tupe_fairseq.modules.encoder import Encoder

TRAINED, LONGER = 6, 40
ENCODINGS = [("tupe_a", {}), ("tupe_r", {}), ("tupe_r", {"tie_cls": True})]
every_encoding = pytest.mark.parametrize(("name", "options"), ENCODINGS)


def build(name, max_positions, **options):
    encoding = build_position_encoding(name, 12, 3, max_positions, **options)
    return enlarged(encoding, 1)


def continued(name, **options):
    how = {"extend_positions": "toeplitz", "trained_positions": TRAINED, **options}
    return build(name, LONGER, **how)


@every_encoding
@pytest.mark.parametrize("length", [1, 2, TRAINED])
def test_up_to_the_trained_length_an_encoder_is_bit_identical(name, options, length):
    encoders = [
        enlarged(Encoder(encoding, 2, 24, dropout=0, attention_dropout=0), 2)
        for encoding in (build(name, TRAINED, **options), continued(name, **options))
    ]
    encoders[1].load_state_dict(encoders[0].state_dict())
    x = normal(2, length, 12, seed=0)
    assert torch.equal(encoders[0](x), encoders[1](x))


@every_encoding
def test_a_short_text_is_the_same_beside_a_long_one(name, options):
    encoding = continued(name, toeplitz_slope=1.0, **options)
    short = encoding.attention_bias(TRAINED, TRAINED).dense()
    long = encoding.attention_bias(LONGER, LONGER).dense()
    assert torch.equal(long[:, :TRAINED, :TRAINED], short)


@every_encoding
@pytest.mark.parametrize("start", [0, 3, TRAINED, LONGER - 1])
def test_queries_may_start_anywhere(name, options, start):
    encoding = continued(name, toeplitz_slope=1.0, **options)
    whole = encoding.attention_bias(LONGER, LONGER).dense()
    queries = LONGER - start
    part = encoding.attention_bias(queries, LONGER, start).dense()
    assert_close(part, whole[:, start:])


@every_encoding
def test_training_at_the_new_length_reaches_all_parameters(name, options):
    encoding = continued(name, **options)
    # Only what no pair of trained positions reads.
    rows = encoding.attention_bias(LONGER, LONGER).rows(TRAINED, LONGER)
    (rows * normal(*rows.shape, seed=0)).sum().backward()
    for parameter_name, parameter in encoding.named_parameters():
        assert parameter.grad.any(), parameter_name


def test_memory_grows_with_the_length_alone():
    bias = continued("tupe_r").attention_bias(LONGER, LONGER)
    sizes = {name: part.numel() // 3 for name, part in bias.parts().items()}
    assert sizes["exact"] == TRAINED**2
    assert max(sizes.values()) < 4 * LONGER


@pytest.mark.parametrize("name", ["tupe_a", "tupe_r"])
@pytest.mark.parametrize("slope", [-0.5, math.nan, math.inf])
def test_scores_do_not_grow_with_the_distance(name, slope):
    with pytest.raises(UsageError, match=f"--toeplitz-slope must be at least 0, but is {slope}"):
        build(name, LONGER, toeplitz_slope=slope)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"trained_positions": LONGER + 1},
            "--trained-positions is 41, .* --max-positions, .* 40",
        ),
        ({"trained_positions": 2}, "--trained-positions is 2, but must be at least 3"),
        ({"toeplitz_far": 5}, "--toeplitz-far is 5, but must be at least 1 and below 5"),
        ({"toeplitz_far": 0}, "--toeplitz-far is 0"),
    ],
)
def test_impossible_numbers_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        continued("tupe_r", **options)
