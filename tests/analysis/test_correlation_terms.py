"""`analysis.correlation_terms` against the paper's equation 6 in loops."""

import math

import pytest
import torch
from torch import nn

from tests.tolerances import assert_close, assert_zero
from tupe_fairseq import UsageError, build_position_encoding
from tupe_fairseq.analysis import CORRELATION_TERMS, correlation_terms
from tupe_fairseq.modules.encoder import Encoder
from tupe_fairseq.position import POSITION_ENCODINGS

WIDTH, HEADS, LENGTH, WORDS = 16, 4, 7, 20
HEAD = WIDTH // HEADS
ADDED = ("learned", "sinusoidal", "hierarchical", "floater", "cape", "shape")


def encoder(name: str, **options) -> Encoder:
    torch.manual_seed(0)
    sides = not POSITION_ENCODINGS[name].causal_only
    position = build_position_encoding(name, WIDTH, HEADS, 10, sides, vocab_size=WORDS)
    built = Encoder(position, 1, 16, **options)
    built.embed_tokens = nn.Embedding(WORDS, WIDTH)
    built.double().eval()
    for parameter in built.parameters():
        nn.init.normal_(parameter, std=0.5)
    return built


def tokens(rows: int = 2) -> torch.Tensor:
    return torch.randint(WORDS, (rows, LENGTH), generator=torch.Generator().manual_seed(1))


def score(built: Encoder, query: torch.Tensor, key: torch.Tensor, head: int) -> float:
    """Without biases: q W^Q (k W^K)ᵀ / √D, entry by entry."""
    attention = built.layers[0].self_attn
    total = 0.0
    for d in range(head * HEAD, (head + 1) * HEAD):
        q = sum(attention.q_proj.weight[d, c].item() * query[c].item() for c in range(WIDTH))
        k = sum(attention.k_proj.weight[d, c].item() * key[c].item() for c in range(WIDTH))
        total += q * k
    return total / math.sqrt(HEAD)


def test_terms_are_the_equation():
    built = encoder("learned")
    ids = tokens(1)
    found = correlation_terms(built, ids)
    assert found.shape == (5, 1, HEADS, LENGTH, LENGTH)
    words = built.embed_tokens.weight[ids[0]]
    # fairseq's table has two rows before position 0.
    positions = built.embed_positions.weight[2 : LENGTH + 2]
    kinds = {"word": words, "position": positions}
    for term, name in zip(found, CORRELATION_TERMS, strict=False):
        query, key = (kinds[kind] for kind in name.split("–"))
        for head, i, j in ((0, 0, 0), (1, 2, 5), (2, 6, 1)):
            expected = torch.tensor(score(built, query[i], key[j], head), dtype=torch.float64)
            assert_close(term[0, head, i, j], expected)


@pytest.mark.parametrize("normalize_before", [False, True])
@pytest.mark.parametrize("layernorm_embedding", [False, True])
@pytest.mark.parametrize("name", ADDED)
def test_terms_sum_to_the_scores(name, layernorm_embedding, normalize_before):
    built = encoder(
        name, layernorm_embedding=layernorm_embedding, normalize_before=normalize_before
    )
    assert_sum_to_the_scores(built, built.embed_positions.token_scale)


def test_scale_and_types_of_the_encoder():
    """Encoders of translation models multiply token embeddings themselves."""
    built = encoder("learned", layernorm_embedding=True, token_types=2)
    built.embed_scale = 3.0
    assert_sum_to_the_scores(built, 3.0)


def assert_sum_to_the_scores(built: Encoder, scale: float) -> None:
    layer, ids = built.layers[0], tokens()
    words = scale * built.embed_tokens(ids)
    with torch.no_grad():
        x = built.encode(words, tokens=ids, keep_states=True).states[0]
        x = layer.self_attn_layer_norm(x) if layer.normalize_before else x
        q, k = (
            project(x).unflatten(-1, (HEADS, HEAD)).transpose(1, 2)
            for project in (layer.self_attn.q_proj, layer.self_attn.k_proj)
        )
        expected = q @ k.transpose(-2, -1) / math.sqrt(HEAD)
    assert_close(correlation_terms(built, ids).sum(0), expected)


def test_position_terms_are_zero_without_positions():
    built = encoder("learned", layernorm_embedding=True)
    nn.init.zeros_(built.embed_positions.weight)
    _, word_position, position_word, position_position, _ = correlation_terms(built, tokens())
    for term in (word_position, position_word, position_position):
        assert_zero(term)


@pytest.mark.parametrize("name", [name for name in POSITION_ENCODINGS if name not in ADDED])
def test_encodings_that_do_not_add_positions_are_refused(name):
    with pytest.raises(UsageError, match="does not add positions to the tokens"):
        correlation_terms(encoder(name), tokens())


def test_too_many_positions_are_refused():
    with pytest.raises(UsageError, match=r"invalid length 14: .* the model's 10 positions"):
        correlation_terms(encoder("learned"), tokens().repeat(1, 2))
