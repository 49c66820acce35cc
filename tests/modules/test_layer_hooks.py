"""Hooks that differ by layer or read the layer's input, by encodings that need them.

Each encoding is compared with float64 loops, layer by layer, in every backend that serves it, with
gradients; and token by token in incremental decoding.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.attention.cases import BACKENDS, enlarged, normal, padding_mask
from tests.modules.hook_encodings import (
    THETAS,
    WINDOW,
    BiasPerLayer,
    Forgetting,
    LocalGlobal,
    Windowed,
)
from tests.reference.attention import attend, project_per_head
from tests.reference.rope import rotate
from tests.tolerances import assert_close, assert_gradients_close
from tupe_fairseq import PositionEncoding, UsageError
from tupe_fairseq.attention import ATTENTION_BACKENDS, Layout, Padding, required_features
from tupe_fairseq.modules.cache import DecoderCache
from tupe_fairseq.modules.encoder import Encoder
from tupe_fairseq.modules.layer import TransformerLayer
from tupe_fairseq.modules.stack import LayerStack, views_of
from tupe_fairseq.position import Shape
from tupe_fairseq.position.bias import HIDDEN

WIDTH, HEADS, LAYERS, LENGTH = 12, 3, 3, 11
PADDING = padding_mask(LENGTH, 0, 4)


ENCODINGS = (BiasPerLayer, LocalGlobal, Windowed, Forgetting)


def reference_terms(encoding, layer, x, weights):
    """The keywords of the loops for this layer, of one sequence x, T×C in float64."""
    cells = [[0.0] * len(x) for _ in x]
    if isinstance(encoding, BiasPerLayer):
        slopes = encoding.by_layer[layer].slopes.double()
        return {
            "positional": [
                [[-(a * abs(i - j) + b * (j - i)) for j in range(len(x))] for i in range(len(x))]
                for a, b in slopes
            ]
        }
    if isinstance(encoding, Forgetting):
        gate = {
            "weight": weights["layer_terms.gate.weight"],
            "bias": weights["layer_terms.gate.bias"],
        }
        logs = [F.logsigmoid(gate["weight"].mv(row) + gate["bias"]) for row in x]
        sums = [sum(logs[: i + 1]) for i in range(len(x))]
        return {
            "positional": [
                [[sums[i][h] - sums[j][h] for j in range(len(x))] for i in range(len(x))]
                for h in range(HEADS)
            ]
        }

    def project(x, weights, name, num_heads):
        rows = project_per_head(x, weights, name, num_heads)
        if name == "v_proj":
            return rows
        return [[rotate(head, k, THETAS[layer % 2]) for head in row] for k, row in enumerate(rows)]

    if layer % 2:
        cells = [[HIDDEN * (abs(i - j) > WINDOW) for j in range(len(x))] for i in range(len(x))]
    turns = {"project": project} if isinstance(encoding, LocalGlobal) else {}
    return {"positional": [cells] * HEADS, **turns}


def by_loops(encoding, layers, x, padding=None, causal=False):
    """Pre-LN layers written out: B×T×C in float64."""
    rows = []
    for b, sequence in enumerate(x.double()):
        length = LENGTH if padding is None else int((~padding[b]).sum())
        sequence = sequence[:length]
        for index, layer in enumerate(layers):
            attention = layer.self_attn
            weights = {name: p.double() for name, p in attention.named_parameters()}
            norm = normalised(sequence, layer.self_attn_layer_norm)
            terms = reference_terms(encoding, index, norm, weights)
            if causal:
                terms["positional"] = [
                    [
                        [HIDDEN if j > i else head[i][j] for j in range(length)]
                        for i in range(length)
                    ]
                    for head in terms["positional"]
                ]
            sequence = sequence + attend(norm[None], weights, HEADS, **terms)[0][0]
            norm = normalised(sequence, layer.final_layer_norm)
            fc1, fc2 = ((m.weight.double(), m.bias.double()) for m in (layer.fc1, layer.fc2))
            sequence = sequence + F.linear(F.gelu(F.linear(norm, *fc1)), *fc2)
        rows.append(F.pad(sequence, (0, 0, 0, LENGTH - length)))
    return torch.stack(rows)


def hide_later(cells):
    return [
        [HIDDEN if j > i else cell for j, cell in enumerate(row)] for i, row in enumerate(cells)
    ]


def normalised(x, norm):
    return F.layer_norm(x, (WIDTH,), norm.weight.double(), norm.bias.double())


def shape():
    return Shape(WIDTH, HEADS, LENGTH, num_layers=LAYERS)


def encoder_of(cls, backend):
    encoder = Encoder(
        cls(shape()), LAYERS, 16, dropout=0.0, attention_dropout=0.0, normalize_before=True,
        attention_backend=backend,
    )  # fmt: skip
    enlarged(encoder, 1)
    # The output is that of the layers.
    encoder.layer_norm = None
    return encoder


def served_by(backend, encoding):
    needs = [
        required_features(seen, seen.build_layer_terms(), window=window)
        for seen, window in views_of(encoding, LAYERS)
    ]
    return not any(ATTENTION_BACKENDS[backend].unsupported(need) for need in needs)


PAIRS = [
    (backend, cls) for cls in ENCODINGS for backend in BACKENDS if served_by(backend, cls(shape()))
]


def test_who_serves_what():
    by_encoding = {cls: {b for b, c in PAIRS if c is cls} for cls in ENCODINGS}
    assert by_encoding == {
        BiasPerLayer: {"blocked", "eager", "sdpa"},
        LocalGlobal: {"blocked", "eager", "sdpa"},
        Windowed: {"blocked", "eager", "sdpa"},
        Forgetting: {"blocked", "eager", "flash", "sdpa"},
    }


@pytest.mark.parametrize("padding", [None, PADDING], ids=["full", "padded"])
@pytest.mark.parametrize(("backend", "cls"), PAIRS)
def test_output_and_gradients_equal_the_loops(backend, cls, padding):
    encoder = encoder_of(cls, backend)
    x = normal(2, LENGTH, WIDTH, seed=0).requires_grad_()
    found = encoder(x, padding)
    expected = by_loops(encoder.embed_positions, encoder.layers, x, padding)
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


def stack_of(cls):
    encoding = cls(shape())
    stack = LayerStack(
        encoding,
        lambda attention: TransformerLayer(attention, 16, F.gelu, 0.0, normalize_before=True),
        LAYERS,
        causal=True,
    )
    enlarged(nn.ModuleList([encoding, stack]), 1)
    return encoding, stack


def run_layers(stack, x, shared, caches=None):
    for index, layer in stack.active():
        x, _ = layer(x, shared[index], None if caches is None else caches[index])
    return x


@pytest.mark.parametrize("cls", ENCODINGS)
def test_decoder_equals_the_loops_at_once_and_token_by_token(cls):
    encoding, stack = stack_of(cls)
    x = normal(2, LENGTH, WIDTH, seed=0)
    expected = by_loops(encoding, stack, x, causal=True)
    with torch.no_grad():
        at_once = run_layers(stack, x, stack.share(encoding, x, Layout(2, LENGTH)))
        cache = DecoderCache(encoding, stack)
        tokens = []
        for position in range(LENGTH):
            token = x[:, position : position + 1]
            tokens.append(run_layers(stack, token, cache.step(position, token), cache.layers))
    assert_close(at_once, expected)
    assert_close(torch.cat(tokens, 1), expected)


def test_hypotheses_take_their_gates_along():
    """Beam search reorders hypotheses; what the gates carry must follow."""
    encoding, stack = stack_of(Forgetting)
    x, order = normal(2, LENGTH, WIDTH, seed=0), torch.tensor([1, 0])
    with torch.no_grad():
        cache = DecoderCache(encoding, stack)
        for position in range(LENGTH):
            if position == 5:
                cache.reorder(order)
            batch = x if position < 5 else x[order]
            token = batch[:, position : position + 1]
            last = run_layers(stack, token, cache.step(position, token), cache.layers)
    expected = by_loops(encoding, stack, x, causal=True)[order]
    assert_close(last, expected[:, -1:])


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


@pytest.mark.parametrize("cls", ENCODINGS)
def test_layers_that_see_the_same_share_one_score(cls, monkeypatch):
    encoder, calls = encoder_of(cls, "eager"), []
    for module in encoder.embed_positions.modules():
        score = module.attention_bias if isinstance(module, PositionEncoding) else None
        if score is not None:
            monkeypatch.setattr(
                module, "attention_bias", lambda *a, f=score, m=module: calls.append(m) or f(*a)
            )
    encoder(normal(1, LENGTH, WIDTH, seed=0))
    assert len(calls) == {BiasPerLayer: 3, LocalGlobal: 2, Windowed: 2, Forgetting: 1}[cls]
    assert len(set(calls)) == {BiasPerLayer: 3, LocalGlobal: 2, Windowed: 1, Forgetting: 1}[cls]


def test_padding_is_read_once():
    padding = Padding.read(PADDING)
    assert padding.lengths == (LENGTH, LENGTH - 4)
    assert not padding.leading
    assert Padding.read(torch.zeros_like(PADDING)) is None


def test_a_slice_of_layers_is_a_list_of_layers():
    stack = stack_of(Forgetting)[1]
    assert list(stack[:2]) == [stack[0], stack[1]]
    assert isinstance(stack[:2], nn.ModuleList)
