"""Padding taken out: nothing changes for the words, and nothing is computed for padding."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.attention.cases import (
    BACKENDS,
    EMBED_DIM,
    encoder_of,
    enlarged,
    normal,
    words,
)
from tests.tolerances import assert_close, assert_gradients_close, assert_zero
from tupe_fairseq.attention import Layout, Padding
from tupe_fairseq.position import POSITION_ENCODINGS

LENGTHS = (3, 17, 1, 9, 12)
LONGEST = max(LENGTHS)
MASK = torch.arange(LONGEST) >= torch.tensor(LENGTHS)[:, None]


@settings(max_examples=50)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_there_and_back(lengths):
    longest = max(lengths)
    mask = torch.arange(longest) >= torch.tensor(lengths)[:, None]
    batch = torch.randn(*mask.shape, 2)
    layout = Layout.of(Padding.read(mask), *mask.shape)
    packed = layout.pack(batch)
    if layout.batch_cells is None:
        assert mask.float().mean() <= 0.1
        assert packed is batch
        return
    assert packed.shape == (sum(lengths), 2)
    assert torch.equal(layout.unpack(packed), batch * ~mask[:, :, None])
    cells = layout.to_attention(packed)
    assert torch.equal(layout.from_attention(cells), packed)
    assert list(layout.lengths) == sorted(lengths, reverse=True)
    assert layout.padding_mask.sum(1).tolist() == [longest - n for n in layout.lengths]
    # Sentences are whole: attention's rows are the batch's, in another order.
    rows = {tuple(row[:n].flatten().tolist()) for row, n in zip(batch, lengths, strict=True)}
    found = zip(cells, layout.lengths, strict=True)
    assert {tuple(row[:n].flatten().tolist()) for row, n in found} == rows


def test_padding_has_no_gradient():
    layout = Layout.of(Padding.read(MASK), *MASK.shape)
    x = torch.randn(sum(LENGTHS), 2, requires_grad=True)
    cells = layout.to_attention(x)
    gradient = torch.where(layout.padding_mask[:, :, None], float("nan"), torch.ones(2))
    cells.backward(gradient)
    assert torch.equal(x.grad, torch.ones_like(x))


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("name", list(POSITION_ENCODINGS))
def test_words_are_those_of_each_sentence_alone(name, training):
    encoder = enlarged(encoder_of(name, LONGEST, layernorm_embedding=True), 1).train(training)
    x = normal(*MASK.shape, EMBED_DIM, seed=0)
    found = encoder(x, MASK, words(x))
    assert_zero(found[MASK])
    for sentence, output, n in zip(x, found, LENGTHS, strict=True):
        alone = encoder(sentence[None, :n], tokens=words(sentence[None, :n]))
        assert_close(output[:n], alone[0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_are_those_of_each_sentence_alone(backend):
    how = {"normalize_before": True, "checkpoint_activations": True}
    encoder = enlarged(encoder_of("tupe_a", LONGEST, attention_backend=backend, **how), 1)
    x, parameters = normal(*MASK.shape, EMBED_DIM, seed=0), dict(encoder.named_parameters())
    loss_weights = normal(*x.shape, seed=1) * ~MASK[:, :, None]

    def gradients(loss):
        found = torch.autograd.grad(loss, parameters.values(), materialize_grads=True)
        return dict(zip(parameters, found, strict=True))

    batched = gradients((encoder(x, MASK) * loss_weights).sum())
    alone = [
        (encoder(sentence[None, :n]) * weights[:n]).sum()
        for sentence, weights, n in zip(x, loss_weights, LENGTHS, strict=True)
    ]
    assert_gradients_close(batched, gradients(sum(alone)), torch.float32)


def test_a_batch_of_padding_alone():
    """Its first symbols count as tokens, so that each row has an output of its own."""
    layout = Layout.of(Padding.read(torch.ones(2, 5, dtype=torch.bool)), 2, 5)
    assert layout.lengths == (1, 1)
    assert layout.batch_cells.tolist() == [0, 5]


def test_only_words_are_computed():
    encoder, rows = encoder_of("tupe_r", LONGEST), []
    for layer in encoder.layers:
        for module in (layer.fc1, layer.final_layer_norm, layer.dropout_module):
            module.register_forward_hook(lambda _, inputs, __: rows.append(inputs[0].shape[:-1]))
    encoder(normal(*MASK.shape, EMBED_DIM, seed=0), MASK)
    assert set(rows) == {(sum(LENGTHS),)}


def test_kept_states_are_batches():
    encoder = encoder_of("tupe_r", LONGEST)
    x = normal(*MASK.shape, EMBED_DIM, seed=0)
    out, states, _ = encoder.encode(x, Padding.read(MASK), keep_states=True)
    assert len(states) == 3
    assert torch.equal(states[0][~MASK], x[~MASK])
    assert torch.equal(states[-1], out)
    for state in states:
        assert_zero(state[MASK])
