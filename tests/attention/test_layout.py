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
def test_sentences_keep_their_places(lengths):
    longest = max(lengths)
    mask = torch.arange(longest) >= torch.tensor(lengths)[:, None]
    encoder = enlarged(encoder_of("tupe_r", 9, num_layers=1), 1)
    x = normal(*mask.shape, EMBED_DIM, seed=0)
    found = encoder(x, mask)
    for sentence, output, n in zip(x, found, lengths, strict=True):
        assert_close(output[:n], encoder(sentence[None, :n])[0])


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
    x = normal(*MASK.shape, EMBED_DIM, seed=0)
    parameters = dict(encoder.named_parameters())
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


def test_only_words_are_computed():
    encoder = encoder_of("tupe_r", LONGEST)
    rows = []
    for layer in encoder.layers:
        for module in (layer.fc1, layer.final_layer_norm, layer.dropout_module):
            module.register_forward_hook(lambda _, inputs, __: rows.append(inputs[0].shape[:-1]))
    encoder(normal(*MASK.shape, EMBED_DIM, seed=0), MASK)
    assert set(rows) == {(sum(LENGTHS),)}
