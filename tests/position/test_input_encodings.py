"""The encodings that enter the input against the loops of tests/reference."""

import functools
import math

import pytest
import torch
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from torch import nn

from tests.attention.cases import (
    EMBED_DIM,
    NUM_HEADS,
    VOCAB_SIZE,
    enlarged,
    gradients,
    normal,
    words,
)
from tests.attention.loops import DTYPES, REFERENCES, SENTENCES, inputs
from tests.covering import covering
from tests.reference import (
    cape,
    cnn,
    complex_order,
    floater,
    hierarchical,
    multiplicative,
    rnn,
    shifted,
    sinusoidal,
)
from tests.tolerances import assert_close, assert_gradients_close, assert_not_zero, assert_zero
from tupe_fairseq import build_position_encoding
from tupe_fairseq.position import POSITION_ENCODINGS

LONGEST = 33
#: Test id -> reference, registered name, arguments. Six rows reach 36 positions.
CASES = {
    "sinusoidal": (sinusoidal, "sinusoidal", {}),
    "multiplicative": (multiplicative, "multiplicative", {}),
    "hierarchical": (hierarchical, "hierarchical", {"hierarchical_rows": 6}),
    "floater": (floater, "floater", {"floater_width": 5}),
    "floater-steps": (floater, "floater", {"floater_width": 5, "floater_steps": 3}),
    "complex_order": (complex_order, "complex_order", {}),
    "cnn": (cnn, "cnn", {"cnn_kernel": 5, "cnn_groups": 4}),
    "cnn-wide": (cnn, "cnn", {"cnn_kernel": 9, "cnn_groups": 1}),
    "cnn-depthwise": (cnn, "cnn", {"cnn_kernel": 3, "cnn_groups": 12}),
    "cnn-one_sided": (
        cnn,
        "cnn",
        {"cnn_kernel": 5, "cnn_groups": 4, "bidirectional": False},
    ),
    # In evaluation; training is in test_random_positions.py.
    "cape": (cape, "cape", {}),
    "shape": (shifted, "shape", {"shape_shifts": 6}),
    "rnn": (rnn, "rnn", {}),
    "rnn-one_sided": (rnn, "rnn", {"bidirectional": False}),
    "rnn-recursive": (rnn, "rnn", {"rnn_recursive": True}),
}
#: Length, and padding at the end of each of two sentences.
LONGER = (*SENTENCES, (33, (0, 20)))


def test_every_registered_encoding_has_its_reference():
    """Here, or among those that tests/attention compares."""
    entering = {name for _, name, _ in CASES.values()}
    assert REFERENCES.keys() | entering == set(POSITION_ENCODINGS)


def build(case, dtype=torch.float64):
    _, name, options = CASES[case]
    encoding = build_position_encoding(
        name, EMBED_DIM, NUM_HEADS, LONGEST, vocab_size=VOCAB_SIZE, **options
    )
    return enlarged(encoding, 1).to(dtype).eval()


def gradients_of(output, x, encoding):
    return gradients(output, x, encoding, nn.Identity())


@functools.cache
def expected_of(case, length, padded, dtype):
    """The reference in float64, at the parameters and words that dtype holds."""
    encoding = build(case, dtype).double()
    reference, _, options = CASES[case]
    x, padding = inputs(length, padded, dtype)
    x = x.detach().double().requires_grad_()
    output = reference.embed(x, dict(encoding.named_parameters()), words(x), padding, **options)
    return output.detach(), gradients_of(output, x, encoding)


@pytest.mark.parametrize(("case", "sentence", "dtype"), covering(CASES, LONGER, DTYPES), ids=str)
def test_output_and_every_gradient_equal_the_loops(case, sentence, dtype):
    length, padded = sentence
    encoding = build(case, dtype)
    x, padding = inputs(length, padded, dtype)
    output = encoding.embed(x, words(x), padding)
    assert output.dtype == dtype
    # Words and parameters are drawn in fp32: float64 holds the same.
    drawn = torch.float32 if dtype == torch.float64 else dtype
    expected, expected_gradients = expected_of(case, length, padded, drawn)
    assert_close(output, expected, dtype)
    assert_gradients_close(gradients_of(output, x, encoding), expected_gradients, dtype)


@pytest.mark.parametrize("steps", [1, 3])
def test_floater_equals_torchdiffeq(steps):
    """The path and all gradients of a solver that knows nothing of the form of h."""
    solver = pytest.importorskip("torchdiffeq")
    encoding = build_position_encoding(
        "floater", EMBED_DIM, 3, LONGEST, floater_width=5, floater_steps=steps
    ).double()
    for seed, parameter in enumerate(encoding.parameters()):
        nn.init.normal_(parameter, std=0.5, generator=torch.Generator().manual_seed(seed))
    times = 0.1 * torch.arange(LONGEST, dtype=torch.float64)
    of = dict(encoding.named_parameters())

    def dynamics(time, p):
        wide = of["dynamics.0.weight"] @ torch.cat((p, time[None])) + of["dynamics.0.bias"]
        return of["dynamics.2.weight"] @ wide.tanh() + of["dynamics.2.bias"]

    expected = solver.odeint(
        dynamics,
        encoding.first,
        times,
        method="rk4",
        options={"step_size": 0.1 / steps},
    )
    found = encoding.path(LONGEST)
    weights = normal(LONGEST, EMBED_DIM, seed=1).double()
    assert_close(found, expected)
    gradients = (
        torch.autograd.grad((path * weights).sum(), list(encoding.parameters()))
        for path in (found, expected)
    )
    for of_found, of_expected in zip(*gradients, strict=True):
        assert_close(of_found, of_expected)


def test_complex_words_keep_their_angle_in_half_precision():
    """Hundreds of radians at far positions: rounded to bfloat16 they would be off by one."""
    encoding = build("complex_order", torch.bfloat16)
    x, _ = inputs(7, None, torch.bfloat16)
    found = encoding.embed(x, words(x), start=500)
    positions = dict(encoding.double().named_parameters())
    expected = complex_order.embed(x.double(), positions, words(x), start=500)
    assert_close(found, expected, torch.bfloat16)


@pytest.mark.parametrize("case", ["floater", "rnn-recursive"])
def test_computed_positions_are_rounded_to_the_dtype_of_the_words(case):
    x, _ = inputs(7, None, torch.bfloat16)
    assert build(case, torch.float32).embed(x).dtype == torch.bfloat16


def test_sinusoids_of_fairseq_are_exact_at_far_positions():
    longest = 5000
    width = 8
    encoding = build_position_encoding(
        "sinusoidal", width, 2, longest, fairseq_sinusoids=True
    ).double()
    x = torch.zeros(1, 1, width, dtype=torch.float64)
    found = encoding.embed(x, start=longest - 1)[0, 0]
    angles = [(longest + 1) * 10000 ** (-i / 3) for i in range(4)]
    expected = [*map(math.sin, angles), *map(math.cos, angles)]
    assert_close(found, torch.tensor(expected, dtype=torch.float64))


def test_floater_begins_standing_still_and_learns_to_move():
    """Also where fairseq's RoBERTa has initialised it; at random it would drown the words."""
    encoding = build_position_encoding("floater", 64, 4, 512).apply(init_bert_params)
    assert_zero(encoding.path(512) - encoding.first)
    optimizer = torch.optim.SGD(encoding.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        (encoding.path(20) * normal(20, 64, seed=0)).sum().backward()
        optimizer.step()
    path = encoding.path(20)
    assert_not_zero(path[19] - path[0])
    assert_not_zero(encoding.get_parameter("dynamics.0.weight").grad)
