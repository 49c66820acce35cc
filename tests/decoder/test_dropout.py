"""Dropout of the attention weights of decoders."""

import pytest
import torch

from tests.decoder.samples import build, sentences, targets


@torch.no_grad()
@pytest.mark.parametrize("kind", ["self_attn", "encoder_attn"])
def test_each_attention_drops_in_training_alone(kind):
    """Where the other attentions do not."""
    model = build("tupe_r")

    def output(seed):
        torch.manual_seed(seed)
        return model(sentences(2, 6), None, targets(2, 9))[0]

    without = output(1)
    for name, module in model.named_modules():
        if name.startswith("decoder") and name.endswith(kind):
            module.dropout = 0.5
    assert torch.equal(output(1), without)
    model.train()
    assert torch.equal(output(1), output(1))
    assert not torch.equal(output(1), output(2))
