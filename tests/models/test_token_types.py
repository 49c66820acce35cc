"""Token types of pairs, against transformers' BERT."""

import pytest
import torch

from tests.interop.samples import masked_lm, perturbed
from tests.tolerances import assert_close

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
#: Parts of BERT's names, and of ours.
NAMES = (
    ("embeddings.word_embeddings", "embed_tokens"),
    ("embeddings.position_embeddings", "embed_positions"),
    ("embeddings.token_type_embeddings", "embed_token_types"),
    ("embeddings.LayerNorm", "layernorm_embedding"),
    ("attention.self.query", "self_attn.q_proj"),
    ("attention.self.key", "self_attn.k_proj"),
    ("attention.self.value", "self_attn.v_proj"),
    ("attention.output.dense", "self_attn.out_proj"),
    ("attention.output.LayerNorm", "self_attn_layer_norm"),
    ("intermediate.dense", "fc1"),
    ("output.dense", "fc2"),
    ("output.LayerNorm", "final_layer_norm"),
    ("encoder.layer.", "layers."),
)
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


@pytest.fixture(scope="module")
def models():
    """A random BERT, and the same as `tupe_roberta`."""
    ours, _ = masked_lm("learned", type_vocab_size=2)
    stack = ours.encoder.sentence_encoder
    config = transformers.BertConfig(
        **{"vocab_size": stack.embed_tokens.num_embeddings, "hidden_size": 32},
        **{"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48},
        **{"max_position_embeddings": 24, "layer_norm_eps": 1e-5},
    )
    theirs = perturbed(transformers.BertModel(config, add_pooling_layer=False), 1)
    state = {}
    for name, value in theirs.state_dict().items():
        for there, here in NAMES:
            name = name.replace(there, here)
        state[name] = value
    rows = stack.embed_positions.weight.detach().clone()
    rows[2:] = state["embed_positions.weight"]
    state["embed_positions.weight"] = rows
    missing, unknown = stack.load_state_dict(state, strict=False)
    assert (missing, unknown) == (["version"], [])
    return ours.eval(), theirs


@torch.no_grad()
def test_pairs_are_berts(models):
    ours, theirs = models
    tokens = torch.tensor(ROWS)
    mask = tokens.ne(1)
    more = {"attention_mask": mask.long(), "token_type_ids": torch.tensor(TYPES)}
    expected = theirs(tokens, **more).last_hidden_state
    found, _ = ours(tokens, features_only=True)
    assert_close(found[mask], expected[mask])
    # A row does not depend on others.
    alone, _ = ours(tokens[:1], features_only=True)
    assert_close(alone, expected[:1])


def test_one_type_is_that_of_all_tokens():
    ours, _ = masked_lm("learned", type_vocab_size=1)
    assert ours.encoder.sentence_encoder.types_of(torch.tensor(ROWS)) is None


def test_both_types_are_trained(models):
    ours, _ = models
    ours(torch.tensor(ROWS[:1]), features_only=True)[0].sum().backward()
    gradient = ours.encoder.sentence_encoder.embed_token_types.weight.grad
    assert gradient.abs().sum(1).gt(0).all()
