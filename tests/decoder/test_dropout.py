"""Dropout of the attention weights of decoders."""

import pytest
import torch

from tests.decoder.samples import build, sentences, targets

ARCHS = ["tupe_transformer", "tupe_transformer_lm"]


def output(model, arch, seed=0):
    torch.manual_seed(seed)
    words = targets(2, 9)
    return model(sentences(2, 6), None, words)[0] if arch == ARCHS[0] else model(words)[0]


@torch.no_grad()
@pytest.mark.parametrize("arch", ARCHS)
def test_evaluation_drops_nothing(arch):
    with_dropout, without = (build("tupe_r", arch, attention_dropout=p) for p in (0.5, 0.0))
    assert torch.equal(output(with_dropout, arch), output(without, arch))


@torch.no_grad()
@pytest.mark.parametrize("kind", ["self_attn", "encoder_attn"])
def test_each_attention_drops_in_training(kind):
    """Where the other attentions do not."""
    model = build("tupe_r", attention_dropout=0.5).train()
    for name, module in model.named_modules():
        if hasattr(module, "q_proj") and hasattr(module, "dropout"):
            module.dropout = 0.5 if name.startswith("decoder") and name.endswith(kind) else 0.0
    first, again, other = (output(model, ARCHS[0], seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
