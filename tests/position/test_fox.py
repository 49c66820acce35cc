"""The forgetting transformer where gates are so strong that sums are large."""

import pytest
from torch import nn

from tests.attention.cases import normal
from tests.tolerances import assert_close
from tupe_fairseq.attention import TupeMultiheadAttention, share_attention
from tupe_fairseq.position import build_position_encoding

LENGTH, WIDTH, HEADS = 600, 8, 2


@pytest.mark.parametrize("backend", ["blocked", "eager", "sdpa"])
def test_later_tokens_stay_hidden_where_all_is_forgotten(backend):
    """F_i − F_j of a later key exceeds 10,000 here, the usual score of hidden keys."""
    encoding = build_position_encoding("fox", WIDTH, HEADS, LENGTH, False)
    terms = encoding.build_layer_terms()
    nn.init.constant_(terms.gate.bias, -30.0)
    attention = TupeMultiheadAttention(WIDTH, HEADS, layer_terms=terms)
    x = normal(1, LENGTH, WIDTH, seed=0)
    how = {"layer_terms": terms, "backend": backend, "causal": True}
    found = attention(x, share_attention(encoding, x, **how))
    # Each token sees itself alone.
    assert_close(found, attention.out_proj(attention.v_proj(x)))
