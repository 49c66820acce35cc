"""`learned` against RoBERTa of transformers, with the same parameters."""

import pytest
import torch

from tests.huggingface.samples import HEADS, LAYERS, LENGTH, WORDS, masked_lm, tokens
from tests.tolerances import assert_close

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

SEEN = tokens().ne(1)
LABELS = torch.where(SEEN, tokens(), -100)

#: Names in transformers' RoBERTa, in their order of replacement, and ours.
ROBERTA = {
    "roberta.embeddings.word_embeddings": "tupe.embed_tokens",
    "roberta.embeddings.position_embeddings": "tupe.encoder.embed_positions",
    "roberta.embeddings.LayerNorm": "tupe.encoder.layernorm_embedding",
    "roberta.encoder.layer": "tupe.encoder.layers",
    "attention.self.query": "self_attn.q_proj",
    "attention.self.key": "self_attn.k_proj",
    "attention.self.value": "self_attn.v_proj",
    "attention.output.dense": "self_attn.out_proj",
    "attention.output.LayerNorm": "self_attn_layer_norm",
    "intermediate.dense": "fc1",
    "output.dense": "fc2",
    "output.LayerNorm": "final_layer_norm",
    "lm_head.bias": "lm_head.decoder.bias",
}


@torch.no_grad()
def test_learned_is_roberta_of_transformers():
    """An independent implementation of everything but other positions."""
    model, state = masked_lm("learned"), {}
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": LAYERS}
    roberta = transformers.RobertaForMaskedLM(
        transformers.RobertaConfig(
            vocab_size=WORDS,
            num_attention_heads=HEADS,
            max_position_embeddings=LENGTH + 2,
            type_vocab_size=1,
            layer_norm_eps=1e-5,
            **sizes,
        )
    ).eval()
    for key, value in roberta.state_dict().items():
        ours = key
        for theirs, own in ROBERTA.items():
            ours = ours.replace(theirs, own)
        state[key] = model.state_dict().get(ours, torch.zeros_like(value))
    roberta.load_state_dict(state)
    roberta.roberta.embeddings.token_type_embeddings.weight.zero_()
    settings = {"attention_mask": SEEN.long(), "output_hidden_states": True}
    out, expected = model(tokens(), **settings), roberta(tokens(), **settings)
    assert_close(out.logits[SEEN], expected.logits[SEEN])
    for one, other in zip(out.hidden_states, expected.hidden_states, strict=True):
        assert_close(one[SEEN], other[SEEN])
    settings = {"attention_mask": SEEN.long(), "labels": LABELS}
    assert_close(model(tokens(), **settings).loss, roberta(tokens(), **settings).loss)
