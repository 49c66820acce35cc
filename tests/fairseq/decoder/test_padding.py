"""A sentence gives the same whatever padding stands beside it, on either side."""

import pytest
import torch

from tests.fairseq.decoder.samples import (
    MODELS,
    PAD,
    build,
    every_variant,
    sentences,
    stock,
    targets,
)
from tests.tolerances import assert_close
from tupe_fairseq import UsageError


def padded(words, left):
    rest = words.new_full((len(words), 4), PAD)
    return torch.cat((rest, words) if left else (words, rest), 1)


@pytest.mark.parametrize("left", [True, False], ids=["left", "right"])
@every_variant
def test_of_source_and_target(variant, left):
    model = build(variant)
    source = sentences(3, 6)
    words = targets(3, 5)
    batch = padded(source, left)
    batch[2] = sentences(1, 10, seed=5)
    found, _ = model(batch, None, padded(words, left))
    found = found[:, 4:] if left else found[:, :5]
    assert_close(found[:2], model(source[:2], None, words[:2])[0])
    assert_close(found[2:], model(batch[2:], None, words[2:])[0])


@pytest.mark.parametrize(("kind", "variant"), MODELS)
@torch.no_grad()
def test_nothing_before_a_token_depends_on_it(kind, variant):
    """Padding on its left included, which a shifted loss would read."""
    model = build(variant, kind)
    words = padded(targets(2, 5), left=True)
    other = words.clone()
    other[:, -1] = targets(1, 5, seed=3)[0, -1]
    inputs = (sentences(2, 6), None) if kind == "tupe_transformer" else ()
    found, expected = (model(*inputs, each)[0][:, :-1] for each in (words, other))
    assert not torch.equal(words, other)
    assert_close(found, expected)


@pytest.mark.parametrize("left", [True, False], ids=["left", "right"])
def test_hidden_states_and_attention_stay_in_their_places(left):
    model = build("tupe_r")
    source = sentences(2, 6)
    words = targets(2, 5)
    batch = padded(source, left)
    encoded = model.encoder(batch, return_all_hiddens=True)
    alone = model.encoder(source, return_all_hiddens=True)
    own = slice(4, None) if left else slice(6)
    for found, expected in zip(encoded["encoder_states"], alone["encoder_states"], strict=True):
        assert_close(found[own], expected)
    assert torch.equal(encoded["encoder_padding_mask"][0], batch.eq(PAD))
    _, extra = model(batch, None, words)
    assert_close(extra["attn"][0][:, :, own], model(source, None, words)[1]["attn"][0])
    assert not extra["attn"][0][batch.eq(PAD)[:, None].expand_as(extra["attn"][0])].any()


def test_equals_stock_fairseq_on_a_batch_of_both():
    theirs = stock("transformer", encoder_learned_pos=True, decoder_learned_pos=True).eval()
    ours = stock("tupe_transformer", position_encoding="learned").eval()
    ours.load_state_dict(theirs.state_dict())
    source = sentences(3, 8)
    words = targets(3, 7)
    source[0, :3] = PAD
    source[1, 5:] = PAD
    words[1, :2] = PAD
    words[2, 5:] = PAD
    # Between words: as in fairseq, a position is the index among the words.
    source[2, 3:5] = PAD
    words[0, 4] = PAD
    found = ours(source, None, words)[0]
    expected = theirs(source, None, words)[0]
    assert_close(found[words != PAD], expected[words != PAD])


def test_a_source_longer_than_the_positions_is_refused():
    model = build("learned", max_source_positions=5)
    with pytest.raises(UsageError, match=r"6 tokens, but --max-source-positions is 5"):
        model(sentences(1, 6), None, targets(1, 3))


@torch.no_grad()
@every_variant
def test_in_half_precision(variant):
    """At once and word by word, finite and near what fp32 gives."""
    model = build(variant)
    source = sentences(2, 6)
    words = targets(2, 8)
    expected, _ = model(source, None, words, features_only=True)
    model = model.bfloat16()
    found, _ = model(source, None, words, features_only=True)
    encoded = model.encoder(source)
    state = {}
    for i in range(8):
        step = words[:, : i + 1]
        last, _ = model.decoder(step, encoded, incremental_state=state, features_only=True)
    for features, wanted in ((found, expected), (last, expected[:, -1:])):
        assert features.dtype == torch.bfloat16
        assert (features - wanted).abs().mean() < wanted.abs().mean() / 10


@pytest.mark.parametrize("left", [True, False], ids=["left", "right"])
def test_given_embeddings_take_the_place_of_words(left):
    model = build("t5")
    source = padded(sentences(2, 6), left)
    given = model.encoder.embed_tokens(source)
    (found,) = model.encoder(source, token_embeddings=given)["encoder_out"]
    assert torch.equal(found, model.encoder(source)["encoder_out"][0])
