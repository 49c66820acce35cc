"""FIRE: its two forms agree, in blocks and at any length."""

import pytest
import torch
from fairseq.modules.transformer_sentence_encoder import init_bert_params

from tests.attention.cases import enlarged, normal
from tests.reference import fire as reference
from tests.tolerances import assert_close, assert_gradients_close
from tupe_fairseq import build_position_encoding
from tupe_fairseq.modules.encoder import Encoder

LENGTH, HEADS = 9, 2


def build(threshold=512, layers=1, dtype=torch.float64, **options):
    sizes = {"num_layers": layers, "fire_threshold": threshold, "fire_width": 4}
    encoding = build_position_encoding("fire", 8, HEADS, LENGTH, **sizes, **options)
    return enlarged(encoding, 1).to(dtype)


def layer_of(threshold, w=1.0):
    layer = build(threshold).at(0)
    with torch.no_grad():
        layer.w.fill_(w)
    return layer


@pytest.mark.parametrize(("threshold", "w"), [(8, 1.0), (4, -2.0), (7, 1.0), (8, 0.9)])
def test_a_table_by_distance_up_to_the_threshold(threshold, w):
    """The last of nine positions is 8."""
    score = layer_of(threshold, w).attention_bias(LENGTH, LENGTH)
    assert set(score.parts()) == ({"by_distance"} if threshold * abs(w) >= 8 else {"cells"})


def test_no_position_depends_on_the_length_of_the_text():
    """So padding changes nothing, and a decoder computes each row once; both forms agree."""
    layer = layer_of(4)
    whole = layer.attention_bias(LENGTH, LENGTH)
    assert whole.cells is not None
    table = layer.attention_bias(5, 5)
    assert table.by_distance is not None
    assert_close(table.dense(), whole.dense()[:, :5, :5])
    assert_close(layer.attention_bias(2, LENGTH, 6).dense(), whole.dense()[:, 6:8])


def test_blocks_change_nothing():
    """Of so many positions that their hidden values are computed in blocks, and again backward."""
    layer, length = layer_of(3), 2100
    score = layer.attention_bias(length, length).dense()
    assert length * length * layer.hidden_bias.numel() > 1 << 24
    rows = torch.tensor([0, 1, 1040, length - 1])
    weights = normal(HEADS, len(rows), length, seed=2).double()
    (score[:, rows] * weights).sum().backward()
    found = {name: p.grad for name, p in layer.named_parameters()}
    expected = torch.cat(
        [layer.attention_bias(1, length, row).dense() for row in rows.tolist()], 1
    )
    assert_close(score[:, rows], expected)
    layer.zero_grad()
    (expected * weights).sum().backward()
    assert_gradients_close(
        found, {name: p.grad for name, p in layer.named_parameters()}, torch.float64
    )


def test_each_layer_has_its_own_function():
    """Computed from its own parameters, by the loops."""
    encoding = build(layers=2)
    for index in range(2):
        positions = {
            name.replace(f"layers.{index}.", "layers.0."): p
            for name, p in encoding.named_parameters()
            if f"layers.{index}." in name
        }
        expected = reference.positional_score(positions, HEADS, 5, 5, fire_width=4)
        assert_close(encoding.at(index).attention_bias(5, 5).dense(), expected)


def test_begins_as_torch_would_where_fairseq_initialises():
    """Its linear layers would begin at 0.02 times a normal number, and the bias near 0."""
    encoding = build_position_encoding("fire", 64, 8, 64, num_layers=2)
    before = {name: p.clone() for name, p in encoding.named_parameters()}
    Encoder(encoding, 2, 16).apply(init_bert_params)
    for name, p in encoding.named_parameters():
        assert torch.equal(p, before[name])
    layer = encoding.at(1)
    assert (layer.c.item(), layer.w.item()) == (pytest.approx(0.1), 1.0)
    assert layer.hidden_weight.abs().max() <= 1
    assert 0.9 * 32**-0.5 < layer.weight.abs().max() <= 32**-0.5
