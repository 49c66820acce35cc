"""Hooks that differ by layer or read the layer's input, by encodings that need them.

Each encoding is compared with float64 loops, layer by layer, in every backend that serves it, with
gradients; and token by token in incremental decoding.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.attention.cases import BACKENDS, enlarged, normal, padding_mask
from tests.modules.hook_encodings import THETAS, WINDOW, BiasPerLayer, LocalGlobal
from tests.reference.attention import attend, bias_table, project_per_head
from tests.reference.rope import rotate
from tests.tolerances import assert_close, assert_gradients_close
from tupe_fairseq import PositionEncoding, UsageError
from tupe_fairseq.attention import ATTENTION_BACKENDS, required_features
from tupe_fairseq.modules.cache import DecoderCache
from tupe_fairseq.modules.encoder import Encoder
from tupe_fairseq.modules.stack import positions_of_layers
from tupe_fairseq.position import Shape
from tupe_fairseq.position.bias import HIDDEN
from tupe_fairseq.position.fox import ForgettingPosition

WIDTH, HEADS, LAYERS, LENGTH = 12, 3, 3, 11
SHAPE = Shape(WIDTH, HEADS, LENGTH, bidirectional=False, num_layers=LAYERS)
PADDING = padding_mask(LENGTH, 0, 4)
ENCODINGS = (BiasPerLayer, LocalGlobal, ForgettingPosition)
every_encoding = pytest.mark.parametrize("cls", ENCODINGS)


def reference_terms(encoding, layer, x, weights):
    """The keywords of the loops for this layer, of one sequence x, T×C in float64."""
    length = len(x)

    def biased(bias):
        return {"positional": bias_table(bias, HEADS, length, length)}

    if isinstance(encoding, BiasPerLayer):
        slopes = encoding.by_layer[layer].slopes.double()
        return biased(lambda h, i, j: -(slopes[h, 0] * abs(i - j) + slopes[h, 1] * (j - i)))
    if isinstance(encoding, ForgettingPosition):
        gate = [weights[f"layer_terms.gate.{name}"] for name in ("weight", "bias")]
        logs = [F.logsigmoid(gate[0].mv(row) + gate[1]) for row in x]
        sums = [sum(logs[: i + 1]) for i in range(length)]
        return biased(lambda h, i, j: sums[i][h] - sums[j][h])

    def project(x, weights, name, num_heads):
        rows = project_per_head(x, weights, name, num_heads)
        if name == "v_proj":
            return rows
        return [[rotate(head, k, THETAS[layer % 2]) for head in row] for k, row in enumerate(rows)]

    reach = WINDOW if layer % 2 else length
    hidden = biased(lambda h, i, j: torch.tensor(HIDDEN * (abs(i - j) > reach)))
    return {**hidden, "project": project}


def by_loops(encoder, x, padding=None):
    """Pre-LN layers written out: B×T×C in float64."""
    rows = []
    for b, sequence in enumerate(x.double()):
        length = LENGTH if padding is None else int((~padding[b]).sum())
        later = torch.ones(length, length).triu(1) * encoder.layers.causal
        sequence = sequence[:length]
        for index, layer in enumerate(encoder.layers):
            weights = {name: p.double() for name, p in layer.self_attn.named_parameters()}
            norm = normalised(sequence, layer.self_attn_layer_norm)
            terms = reference_terms(encoder.embed_positions, index, norm, weights)
            terms["positional"] = terms["positional"] + HIDDEN * later
            sequence = sequence + attend(norm[None], weights, HEADS, **terms)[0][0]
            norm = normalised(sequence, layer.final_layer_norm)
            fc1, fc2 = ((m.weight.double(), m.bias.double()) for m in (layer.fc1, layer.fc2))
            sequence = sequence + F.linear(F.gelu(F.linear(norm, *fc1)), *fc2)
        rows.append(F.pad(sequence, (0, 0, 0, LENGTH - length)))
    return torch.stack(rows)


def normalised(x, norm):
    return F.layer_norm(x, (WIDTH,), norm.weight.double(), norm.bias.double())


def encoder_of(cls, backend="auto", causal=False):
    encoder = Encoder(
        cls(SHAPE), LAYERS, 16, dropout=0.0, attention_dropout=0.0, normalize_before=True,
        attention_backend=backend, causal=causal, final_norm=False,
    )  # fmt: skip
    return enlarged(encoder, 1)


def served_by(backend, encoding):
    features = [
        required_features(seen, seen.build_layer_terms(), window=window)
        for seen, window in positions_of_layers(encoding, LAYERS)
    ]
    return not any(map(ATTENTION_BACKENDS[backend].unsupported, features))


PAIRS = [
    (backend, cls) for cls in ENCODINGS for backend in BACKENDS if served_by(backend, cls(SHAPE))
]


@pytest.mark.parametrize("padding", [None, PADDING], ids=["full", "padded"])
@pytest.mark.parametrize(("backend", "cls"), PAIRS)
def test_output_and_gradients_equal_the_loops(backend, cls, padding):
    encoder = encoder_of(cls, backend)
    x = normal(2, LENGTH, WIDTH, seed=0).requires_grad_()
    found, expected = encoder(x, padding), by_loops(encoder, x, padding)
    tokens = slice(None) if padding is None else ~padding
    assert_close(found[tokens], expected[tokens])
    parameters = {"x": x, **dict(encoder.named_parameters())}
    loss_weights = normal(*found.shape, seed=3)

    def gradients(out):
        loss = (out[tokens] * loss_weights[tokens]).sum()
        values = torch.autograd.grad(
            loss, parameters.values(), allow_unused=True, materialize_grads=True
        )
        return dict(zip(parameters, (value.float() for value in values), strict=True))

    assert_gradients_close(gradients(found), gradients(expected), torch.float32)


def cache_of(encoder):
    return DecoderCache(encoder.embed_positions, encoder.layers)


@torch.no_grad()
@every_encoding
def test_decoder_equals_the_loops_at_once_and_token_by_token(cls):
    encoder, x = encoder_of(cls, causal=True), normal(2, LENGTH, WIDTH, seed=0)
    expected, cache = by_loops(encoder, x), cache_of(encoder)
    assert_close(encoder(x), expected)
    found = [encoder.extend(token, cache).x for token in x.split(1, 1)]
    assert_close(torch.cat(found, 1), expected)


@pytest.mark.parametrize(
    ("backend", "cls", "reason"),
    [
        ("flash", LocalGlobal, "restrict attention to a window"),
        ("flash", BiasPerLayer, "bias that depends on the distance"),
    ],
)
def test_what_is_not_served_is_refused_when_built(backend, cls, reason):
    with pytest.raises(UsageError, match=f"'{backend}', but .*{reason}; use auto or eager"):
        encoder_of(cls, backend)


@every_encoding
def test_layers_that_see_the_same_share_one_score(cls, monkeypatch):
    encoder, calls = encoder_of(cls, "eager"), []
    for module in encoder.embed_positions.modules():
        score = module.attention_bias if isinstance(module, PositionEncoding) else None
        if score is not None:
            monkeypatch.setattr(
                module, "attention_bias", lambda *a, f=score, m=module: calls.append(m) or f(*a)
            )
    encoder(normal(1, LENGTH, WIDTH, seed=0))
    expected = {BiasPerLayer: 3, LocalGlobal: 2, ForgettingPosition: 1}[cls]
    assert len(calls) == len(set(calls)) == expected


def test_every_layer_owns_its_terms():
    terms = encoder_of(ForgettingPosition).layers.terms()
    assert len({term.gate.weight for term in terms}) == LAYERS


def test_a_slice_of_layers_is_a_list_of_layers():
    layers = encoder_of(ForgettingPosition).layers
    assert list(layers[:2]) == [layers[0], layers[1]]
    assert isinstance(layers[:2], nn.ModuleList)
