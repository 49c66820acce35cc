"""`position_maps` of each encoding against the papers' formulas in loops."""

import math

import pytest
import torch

from scripts.drawing.maps import position_maps
from tests.tolerances import assert_close
from tupe_fairseq import UsageError, build_position_encoding
from tupe_fairseq.position import POSITION_ENCODINGS
from tupe_fairseq.transformer.config import StackConfig
from tupe_fairseq.transformer.stack import TransformerStack

WIDTH = 16
HEADS = 2
LENGTH = 12
HEAD = WIDTH // HEADS


def encoder(name: str, **options) -> TransformerStack:
    """Two layers with parameters large enough for positions to matter."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 30, "num_layers": 2}
    sides = not POSITION_ENCODINGS[name].causal_only
    position = build_position_encoding(name, WIDTH, HEADS, 20, sides, **sizes, **options)
    built = TransformerStack(position, StackConfig(2, 32)).double()
    for parameter in built.parameters():
        torch.nn.init.normal_(parameter)
    return built


def cells(value) -> torch.Tensor:
    """T×T of value(i, j)."""
    rows = [[float(value(i, j)) for j in range(LENGTH)] for i in range(LENGTH)]
    return torch.tensor(rows, dtype=torch.float64)


def cosines(vector) -> torch.Tensor:
    """T×T of the cosine of vector(i) and vector(j)."""

    def norm(v):
        return math.sqrt(sum(float(x) ** 2 for x in v))

    return cells(
        lambda i, j: (
            sum(float(a) * float(b) for a, b in zip(vector(i), vector(j), strict=True))
            / (norm(vector(i)) * norm(vector(j)))
        )
    )


def wave(k: int) -> list[float]:
    angles = [k / 10000 ** (2 * i / WIDTH) for i in range(WIDTH // 2)]
    return [f(angle) for angle in angles for f in (math.sin, math.cos)]


@pytest.mark.parametrize("name", list(POSITION_ENCODINGS))
def test_every_encoding_is_drawn_or_refused(name):
    built = encoder(name)
    if name == "none":
        with pytest.raises(UsageError, match="there is nothing to draw"):
            position_maps(built, LENGTH)
        return
    maps, names, meaning = position_maps(built, LENGTH, layer=2)
    assert maps.shape == (len(names), LENGTH, LENGTH)
    assert meaning
    assert maps.isfinite().all()
    assert maps.std() > 0


@pytest.mark.parametrize(
    ("name", "options"),
    [("cape", {}), ("shape", {}), ("deberta", {"deberta_dropout": 0.5})],
)
def test_maps_are_those_of_evaluation(name, options):
    """In training, these positions are drawn or dropped at random; the model's mode stays."""
    built = encoder(name, **options)
    expected = position_maps(built.eval(), LENGTH).maps
    assert torch.equal(position_maps(built.train(), LENGTH).maps, expected)
    assert all(module.training for module in built.modules())


def test_vectors_of_the_input():
    learned = encoder("learned")
    table = learned.embed_positions.weight
    assert_close(position_maps(learned, LENGTH).maps[0], cosines(lambda k: table[k + 2]))
    multiplicative = encoder("multiplicative")
    table = multiplicative.embed_positions.weight
    gained = cosines(lambda k: table[k] - 1)
    assert_close(position_maps(multiplicative, LENGTH).maps[0], gained)
    assert_close(position_maps(encoder("sinusoidal"), LENGTH).maps[0], cosines(wave))


def test_complex_order_averages_over_words():
    built = encoder("complex_order")
    encoding = built.embed_positions
    with torch.no_grad():
        # If all words are equal, each is the average.
        encoding.frequency.copy_(encoding.frequency[3].repeat(30, 1))
        encoding.phase.copy_(encoding.phase[3].repeat(30, 1))
    ones = torch.ones(1, LENGTH, WIDTH, dtype=torch.float64)
    vectors = encoding.embed(ones, torch.full((1, LENGTH), 3))[0]
    assert_close(position_maps(built, LENGTH).maps[0], cosines(lambda k: vectors[k]))


def test_cnn_differs_at_the_ends_only():
    maps = position_maps(encoder("cnn", cnn_kernel=5, cnn_groups=1), LENGTH).maps[0]
    inner = slice(2, LENGTH - 2)
    assert_close(maps[inner, inner], torch.ones_like(maps[inner, inner]))
    assert maps[0, 5] < 0.99
    assert maps[0, LENGTH - 1] < 0.99


@pytest.mark.parametrize("name", ["learned", "rope", "sinusoidal", "tupe_r"])
def test_maps_are_on_the_device_of_the_model(name):
    assert position_maps(encoder(name).to("meta"), LENGTH).maps.is_meta


def test_rope_depends_on_the_distance():
    angles = [10000 ** (-2 * i / HEAD) for i in range(HEAD // 2)]
    expected = cells(lambda i, j: sum(math.cos((i - j) * a) for a in angles) / len(angles))
    # `position_maps` probes in fp32.
    assert_close(position_maps(encoder("rope"), LENGTH).maps[0], expected.float())


def test_rope_as_it_is_scaled_at_this_length():
    """The frequencies of the whole text; the magnitude of yarn cancels."""
    options = {"rope_original_positions": 4, "rope_scaling_factor": 2.0}
    dynamic = encoder("rope", rope_scaling="dynamic", **options)
    theta = 10000 * (2 * LENGTH / 4 - 1) ** (HEAD / (HEAD - 2))
    angles = [theta ** (-2 * i / HEAD) for i in range(HEAD // 2)]
    expected = cells(lambda i, j: sum(math.cos((i - j) * a) for a in angles) / len(angles))
    assert_close(position_maps(dynamic, LENGTH).maps[0], expected.float())
    yarn = position_maps(encoder("rope", rope_scaling="yarn", **options), LENGTH)
    assert_close(yarn.maps[0].diagonal(), torch.ones(LENGTH))


def test_pope_depends_on_the_distance_and_its_phases():
    built = encoder("pope")
    phase = built.layers[0].self_attn.layer_terms.phase.clamp(-2 * math.pi, 0)[:, 0]
    for head, maps in enumerate(position_maps(built, LENGTH).maps):

        def term(distance, phase=phase[head]):
            angles = [distance * 10000 ** (-m / HEAD) + float(phase[m]) for m in range(HEAD)]
            return sum(math.cos(angle) for angle in angles)

        expected = cells(lambda i, j, term=term: term(j - i) / term(0))
        assert_close(maps, expected)


def test_shaw_shows_the_norm_of_its_vectors():
    built = encoder("shaw", relative_clip=4)
    key = built.layers[1].self_attn.layer_terms.key

    def length(i, j):
        row = key[min(max(i - j, -4), 4) + 4]
        return math.sqrt(sum(float(x) ** 2 for x in row) / HEAD)

    maps = position_maps(built, LENGTH, layer=2).maps
    for head in range(HEADS):
        assert_close(maps[head], cells(length))


def test_deberta_sums_squares_of_both_directions():
    built = encoder("deberta", relative_clip=4)
    table = built.embed_positions.weight
    terms = built.layers[0].self_attn.layer_terms
    scale = 1 / math.sqrt(3 * HEAD)
    for head, maps in enumerate(position_maps(built, LENGTH).maps):
        own = slice(head * HEAD, (head + 1) * HEAD)
        pos_k = terms.pos_k_proj(table)[:, own]
        pos_q = terms.pos_q_proj(table)[:, own]

        def strength(i, j, pos_k=pos_k, pos_q=pos_q):
            forth, back = (min(max(d + 4, 0), 7) for d in (i - j, j - i))
            squares = pos_k[forth].square().sum() + pos_q[back].square().sum()
            return math.sqrt(float(squares)) * scale

        assert_close(maps, cells(strength))


def test_transformer_xl_shows_its_distance_term():
    built = encoder("transformer_xl")
    terms = built.layers[0].self_attn.layer_terms
    for head, maps in enumerate(position_maps(built, LENGTH).maps):
        weight = terms.r_proj.weight.view(HEADS, HEAD, WIDTH)[head]
        direction = terms.position_bias[head, 0] @ weight / math.sqrt(HEAD)

        def term(i, j, direction=direction):
            return sum(float(a) * b for a, b in zip(direction, wave(i - j), strict=True))

        assert_close(maps, cells(term))


def test_encodings_that_differ_by_layer():
    built = encoder("fire")
    first, second = (position_maps(built, LENGTH, layer).maps for layer in (1, 2))
    assert_close(first, built.embed_positions.layers[0].attention_bias(LENGTH, LENGTH).dense())
    assert_close(second, built.embed_positions.layers[1].attention_bias(LENGTH, LENGTH).dense())
    assert (first - second).abs().max() > 0.1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((21,), "invalid length 21: .* 20 positions"),
        ((0,), "invalid length 0: .* 20 positions"),
        ((5, 3), "invalid layer 3: it must be between 1 and the model's 2"),
        ((5, 0), "invalid layer 0"),
    ],
)
def test_invalid_arguments(arguments, message):
    with pytest.raises(UsageError, match=message):
        position_maps(encoder("shaw"), *arguments)
