"""Token types of pairs; tests/convert/test_warm_starts.py compares a model with BERT."""

import torch

from tests.convert.samples import masked_lm

#: Ids of rows: a pair, a padded pair, a padded sentence, a pair with two separators.
ROWS = [
    [0, 5, 6, 7, 2, 8, 9, 10, 11, 2],
    [0, 5, 2, 12, 13, 2, 1, 1, 1, 1],
    [0, 14, 15, 2, 1, 1, 1, 1, 1, 1],
    [0, 5, 6, 2, 2, 8, 9, 10, 2, 1],
]
TYPES = [
    [0, 0, 0, 0, 0, 1, 1, 1, 1, 1],
    [0, 0, 0, 1, 1, 1, 0, 0, 0, 0],
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    [0, 0, 0, 0, 1, 1, 1, 1, 1, 0],
]


def types_of(number):
    model, _ = masked_lm("learned", type_vocab_size=number)
    return model.encoder.sentence_encoder.types_of(torch.tensor(ROWS))


def test_the_second_text_has_the_second_type():
    shown = torch.tensor(ROWS) != 1
    assert torch.equal(types_of(2)[shown], torch.tensor(TYPES)[shown])
    assert types_of(1) is None, "that of all tokens"


def test_both_types_are_trained():
    model, _ = masked_lm("learned", type_vocab_size=2)
    model(torch.tensor(ROWS[:1]), features_only=True)[0].square().sum().backward()
    gradient = model.encoder.sentence_encoder.embed_token_types.weight.grad
    assert gradient.abs().sum(1).gt(0).all()
