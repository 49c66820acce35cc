"""Words are as large beside positions as in the paper of the positions."""

import math

import torch
import torch.nn.functional as F

from tests.fairseq.training.test_roberta_suite import batch, build
from tests.reference import sinusoidal
from tests.tolerances import assert_close


@torch.no_grad()
def test_words_are_scaled_beside_sinusoids():
    """√C E[w] + p (Vaswani et al. 2017, section 3.4), then RoBERTa's LayerNorm."""
    model = build(position_encoding="sinusoidal").eval()
    tokens = batch()
    encoder = model.encoder.sentence_encoder
    words = encoder.embed_tokens(tokens)
    expected = sinusoidal.embed(math.sqrt(12) * words.double(), {})
    first = encoder(tokens, return_all_hiddens=True)["encoder_states"][0]
    assert_close(first.transpose(0, 1), F.layer_norm(expected, (12,)))
    # As in fairseq, also words that are given, e.g. with r3f's noise.
    given, _ = model(tokens, features_only=True, token_embeddings=words)
    assert torch.equal(given, model(tokens, features_only=True)[0])
