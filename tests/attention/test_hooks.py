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
from tupe_fairseq.attention import choose_backend, required_features
from tupe_fairseq.modules.encoder import Encoder
from tupe_fairseq.position import LayerTerms, Shape
from tupe_fairseq.position.t5 import T5Bias

LENGTH, CLIP = 7, 2
OPTIONS = {"num_buckets": 8, "max_distance": 6}


class RelativeKeys(LayerTerms):
    """Shaw et al. 2018, naively: q_i · R^K_clip(i−j)."""

    def __init__(self, head_dim):
        super().__init__()
        self.keys = nn.Parameter(torch.empty(2 * CLIP + 1, head_dim))

    def content(self, q, k, x, encoding, start=0):
        assert isinstance(encoding, PositionEncoding)
        return torch.einsum("bhtd,tsd->bhts", q, self.keys[clipped(q.size(2), k.size(2))])


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


class Rotated(PositionEncoding):
    def rotate(self, q, k, v, start=0):
        return 2 * q, k, -v


def build(cls, dtype=torch.float32, **options):
    encoding = enlarged(cls(Shape(EMBED_DIM, NUM_HEADS, LENGTH), **options), 1).to(dtype)
    return encoding, enlarged(attention_of(encoding), 2).to(dtype)


def by_loops(encoding, attention, x, padding, **options):
    """The reference with the tables of the toy encodings in its loops."""
    weights = {name: p.double() for name, p in attention.named_parameters()}
    keys = weights["layer_terms.keys"]

    def row(i, j):
        return max(-CLIP, min(CLIP, i - j)) + CLIP

    terms = {"score_term": lambda h, i, j, q, k: q.dot(keys[row(i, j)])}
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


def test_flash_does_not_support_a_term_of_content():
    encoding, terms = build(ShawKeys)[0], RelativeKeys(EMBED_DIM // NUM_HEADS)
    with pytest.raises(UsageError, match=r"'flash', but .* on content; use auto or eager"):
        choose_backend("flash", required_features(encoding, terms))
    assert choose_backend("auto", required_features(encoding, terms)).name == "sdpa"


def test_an_encoder_with_an_unsupported_backend_is_an_error_when_built():
    """Not in the first batch, when the data is loaded."""
    with pytest.raises(UsageError, match="on content"):
        Encoder(build(ShawKeys)[0], num_layers=1, ffn_dim=EMBED_DIM, attention_backend="flash")


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
