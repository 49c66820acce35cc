"""No word of a decoder sees a later one, and where weights are dropped.

Backends: tests/attention/test_hidden_keys.py.
"""

import pytest
import torch

from tests.fairseq.decoder.samples import PAD, build, every_model, sentences, targets
from tests.tolerances import assert_close
from tupe_fairseq import UsageError


@every_model
@torch.no_grad()
def test_later_words_change_nothing(arch, variant):
    """Neither in training with dropout, of which the same is drawn twice."""
    model = build(variant, arch, attention_dropout=0.2, dropout=0.1)
    source = (sentences(2, 6), None) if arch == "tupe_transformer" else ()
    before = targets(2, 9)
    after = before.clone()
    after[:, 5:] = targets(2, 9, seed=7)[:, 5:]
    for training in (False, True):
        outputs = []
        for words in (before, after):
            torch.manual_seed(3)
            outputs.append(model.train(training)(*source, words)[0])
        assert torch.equal(outputs[0][:, :5], outputs[1][:, :5])
        assert not torch.allclose(outputs[0][:, 5:], outputs[1][:, 5:]), "it would test nothing"


def test_a_backend_that_cannot_decode_is_refused():
    with pytest.raises(UsageError, match=r"mask later tokens.*use auto or eager"):
        build("learned", attention_backend="flash")


def test_full_context_is_given_where_it_is_asked_for():
    """For the alignment models of Garg et al. 2019; padding at the end changes nothing."""
    model = build("learned")
    source = sentences(2, 6)
    words = targets(2, 9)
    changed = words.clone()
    encoded = model.encoder(source)
    changed[:, 8] = 5
    padded = torch.cat((words, words.new_full((2, 3), PAD)), 1)
    found, other, alone = (
        model.decoder(w, encoded, full_context_alignment=True)[0][:, :9]
        for w in (padded, changed, words)
    )
    assert not torch.allclose(alone[:, 0], other[:, 0])
    assert_close(found, alone)


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
