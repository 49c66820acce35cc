"""Where a head reads a few tokens, the last feed-forward block is computed for these alone."""

import pytest
import torch
from torch import nn

from tests.attention.cases import IN_ENCODERS
from tests.fairseq.training.test_roberta_suite import build
from tests.tolerances import assert_close, assert_gradients_close

#: Tokens of the sequences: without padding, with some, and with so much that it is taken out.
LENGTHS = {"whole": (9, 9, 9), "padded": (9, 9, 8), "packed": (2, 9, 4)}


def batch(lengths):
    """Ids, and the tokens that are read: both ends of each sequence and every third token."""
    tokens = torch.randint(4, 200, (len(lengths), max(lengths)))
    read = torch.zeros_like(tokens, dtype=torch.bool)
    read[:, ::3] = True
    for row, length in enumerate(lengths):
        read[row, length - 1] = True
        tokens[row, length:] = 1
        read[row, length:] = False
    return tokens, read


def outcome(model, output):
    """An output, and the gradients of all parameters."""
    model.zero_grad()
    weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    (output * weights).sum().backward()
    own = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return output.detach(), own


def assert_same(model, found, expected):
    """Compare functions that compute an output, at equal random numbers."""
    torch.manual_seed(1)
    found, found_gradients = outcome(model, found())
    torch.manual_seed(1)
    expected, expected_gradients = outcome(model, expected())
    assert_close(found, expected)
    assert_gradients_close(found_gradients, expected_gradients, expected.dtype)


def assert_masked_alike(model, tokens, read):
    """Compare the logits of the tokens that are read with those of all tokens."""
    assert_same(
        model, lambda: model(tokens, masked_tokens=read)[0], lambda: model(tokens)[0][read]
    )


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("name", IN_ENCODERS)
def test_masked_tokens(name, lengths):
    model = build(position_encoding=name, encoder_embed_dim=16)
    tokens, read = batch(lengths)
    assert_masked_alike(model, tokens, read)


@pytest.mark.parametrize(
    "setting",
    [
        {"encoder_normalize_before": True},
        {"checkpoint_activations": True},
        {"encoder_layerdrop": 0.5},
        {"encoder_layerdrop": 1.0},
        {"position_encoding": "deberta", "deberta_emd": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_masked_tokens_of_other_models(setting, lengths):
    model = build(**setting)
    tokens, read = batch(lengths)
    assert_masked_alike(model, tokens, read)


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_heads_of_sentences(lengths):
    model = build()
    model.register_classification_head("sentences", 3)
    head = model.classification_heads["sentences"].eval()
    tokens, _ = batch(lengths)
    assert_same(
        model,
        lambda: model(tokens, classification_head_name="sentences")[0],
        lambda: head(model(tokens, features_only=True)[0]),
    )


def test_other_heads_read_all_tokens():
    """A head of one's own, and one for tokens."""
    model = build().eval()
    tokens, _ = batch(LENGTHS["packed"])
    model.classification_heads["all"] = nn.Identity()
    model.register_token_head("tokens", 3)
    features, _ = model(tokens, features_only=True)
    assert torch.equal(model(tokens, classification_head_name="all")[0], features)
    assert model(tokens, classification_head_name="tokens")[0].shape == (3, 9, 3)


def test_states_are_those_of_all_tokens():
    model = build().eval()
    tokens, read = batch(LENGTHS["packed"])
    logits, extra = model(tokens, masked_tokens=read, return_all_hiddens=True)
    assert [state.shape for state in extra["inner_states"]] == [(9, 3, 12)] * 4
    assert torch.equal(logits, model(tokens)[0][read])


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_work_of_the_last_feed_forward_block(lengths):
    model = build()
    tokens, read = batch(lengths)
    model.register_classification_head("sentences", 3)
    counts = []
    model.encoder.sentence_encoder.layers[-1].activation_dropout_module.register_forward_hook(
        lambda _, given, __: counts.append(given[0].flatten(0, -2).size(0))
    )
    model(tokens, masked_tokens=read)
    model(tokens, classification_head_name="sentences")
    model(tokens)
    all_tokens = sum(lengths) if lengths == LENGTHS["packed"] else tokens.numel()
    assert counts == [read.sum(), len(lengths), all_tokens]
