"""The hooks that no encoding of the paper uses, by toy encodings that use them."""

import pytest
import torch
from torch import nn

from tests.attention.cases import (
    BACKENDS,
    EMBED_DIM,
    NUM_HEADS,
    attention_of,
    enlarged,
    normal,
    padding_mask,
    run,
)
from tests.reference import t5
from tests.reference.attention import attend
from tests.tolerances import assert_close
from tupe_fairseq import PositionEncoding, UsageError
from tupe_fairseq.attention import choose_backend, needs_of
from tupe_fairseq.modules.encoder import Encoder
from tupe_fairseq.position import LayerTerms, Shape
from tupe_fairseq.position.t5 import T5Bias

LENGTH, CLIP = 7, 2
OPTIONS = {"num_buckets": 8, "max_distance": 6}


class RelativeKeys(LayerTerms):
    """Shaw et al. 2018, naively: q_i · R^K_clip(i−j)."""

    adds_score = True

    def __init__(self, head_dim):
        super().__init__()
        self.keys = nn.Parameter(torch.empty(2 * CLIP + 1, head_dim))

    def score(self, q, k, encoding, start=0, projected=None):
        assert isinstance(encoding, PositionEncoding)
        return torch.einsum("bhtd,tsd->bhts", q, self.keys[clipped(q.size(2), k.size(2))])


class RelativeKeysAndValues(RelativeKeys):
    """And Σ_j a_ij R^V_clip(i−j) in the output."""

    adds_value = True

    def __init__(self, head_dim):
        super().__init__(head_dim)
        self.values = nn.Parameter(torch.empty(2 * CLIP + 1, head_dim))

    def value(self, weights, encoding, start=0, projected=None):
        return torch.einsum("bhts,tsd->bhtd", weights, self.values[clipped(*weights.shape[2:])])


def clipped(queries, keys):
    offsets = torch.arange(queries)[:, None] - torch.arange(keys)[None, :]
    return offsets.clamp(-CLIP, CLIP) + CLIP


class ShawKeys(PositionEncoding):
    def build_layer_terms(self):
        return RelativeKeys(self.shape.head_dim)


class ShawKeysWithBias(T5Bias):
    """A content-free and a content-dependent term together."""

    def build_layer_terms(self):
        return RelativeKeys(self.shape.head_dim)


class Shaw(PositionEncoding):
    def build_layer_terms(self):
        return RelativeKeysAndValues(self.shape.head_dim)


class Rotated(PositionEncoding):
    def rotate(self, q, k, v, start=0):
        return 2 * q, k, -v


def build(cls, dtype=torch.float32, **options):
    encoding = enlarged(cls(Shape(EMBED_DIM, NUM_HEADS, LENGTH), **options), 1).to(dtype)
    return encoding, enlarged(attention_of(encoding), 2).to(dtype)


def by_loops(encoding, attention, x, padding, **options):
    """The reference with the tables of the toy encodings in its loops."""
    weights = {name: p.double() for name, p in attention.named_parameters()}
    keys, values = weights["layer_terms.keys"], weights.get("layer_terms.values")

    def row(i, j):
        return max(-CLIP, min(CLIP, i - j)) + CLIP

    terms = {"score_term": lambda h, i, j, q, k: q.dot(keys[row(i, j)])}
    if values is not None:
        terms["value_term"] = lambda h, i, j: values[row(i, j)]
    if options:
        positions = {name: p.double() for name, p in encoding.named_parameters()}
        terms["positional"] = t5.positional_score(positions, NUM_HEADS, LENGTH, LENGTH, **options)
    return attend(x.double(), weights, NUM_HEADS, padding, **terms)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("padding", [None, padding_mask(LENGTH, 3, 0)], ids=["full", "padded"])
@pytest.mark.parametrize(("cls", "options"), [(ShawKeys, {}), (ShawKeysWithBias, OPTIONS)])
@pytest.mark.parametrize("name", ["eager", "sdpa"])
def test_content_dependent_score_equals_the_loops(name, cls, options, padding, dtype):
    encoding, attention = build(cls, dtype, **options)
    x = normal(2, LENGTH, EMBED_DIM, seed=0, dtype=dtype)
    output, _ = run(encoding, attention, x, padding, backend=name)
    assert_close(output, by_loops(encoding, attention, x, padding, **options)[0])


@pytest.mark.parametrize("padding", [None, padding_mask(LENGTH, 3, 0)], ids=["full", "padded"])
@pytest.mark.parametrize("name", ["eager", "auto"])
def test_value_term_equals_the_loops(name, padding):
    """`auto` must not choose a backend that would leave the term out."""
    encoding, attention = build(Shaw)
    x = normal(2, LENGTH, EMBED_DIM, seed=0)
    output, _ = run(encoding, attention, x, padding, backend=name)
    assert_close(output, by_loops(encoding, attention, x, padding)[0])


def test_value_term_sees_the_weights_after_dropout():
    """Shaw's a_ij is one and the same in both sums: with all weights dropped nothing is left."""
    encoding, attention = build(Shaw)
    attention.dropout = 1.0
    x = normal(2, LENGTH, EMBED_DIM, seed=0)
    output, _ = run(encoding, attention.train(), x, backend="eager")
    assert_close(output, attention.out_proj.bias.expand_as(output))


def test_sdpa_refuses_value_terms():
    terms = RelativeKeysAndValues(EMBED_DIM // NUM_HEADS)
    with pytest.raises(UsageError, match=r"'sdpa', but .* to the values; use auto or eager"):
        choose_backend("sdpa", needs_of(build(Shaw)[0], terms))
    assert choose_backend("auto", needs_of(build(Shaw)[0], terms)).name == "eager"


def test_encoder_refuses_when_built():
    """Not in the first batch, when the data is loaded."""
    encoding = build(Shaw)[0]
    with pytest.raises(UsageError, match="to the values"):
        Encoder(encoding, num_layers=1, ffn_dim=EMBED_DIM, attention_backend="sdpa")


def test_every_layer_owns_its_terms():
    encoder = Encoder(build(ShawKeys)[0], num_layers=2, ffn_dim=EMBED_DIM)
    first, second = (layer.self_attn.layer_terms for layer in encoder.layers)
    assert first is not second
    assert first.keys is not second.keys


@pytest.mark.parametrize("name", BACKENDS)
def test_rotation_acts_on_queries_keys_and_values(name):
    """A rotation that doubles the queries and turns the values around, as projections could."""
    encoding, attention = build(Rotated)
    x = normal(2, LENGTH, EMBED_DIM, seed=0)
    output, _ = run(encoding, attention, x, backend=name)
    with torch.no_grad():
        for parameter in attention.q_proj.parameters():
            parameter.mul_(2)
        for parameter in attention.v_proj.parameters():
            parameter.neg_()
    expected, _ = run(build(PositionEncoding)[0], attention, x, backend=name)
    assert_close(output, expected)
