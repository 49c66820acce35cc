"""What fairseq's own test-suite does with RoBERTa, with our architecture in its place."""

import importlib
from argparse import Namespace

import pytest
import torch
from fairseq import models

from tests import toy_data
from tests.fairseq_commands import finetune
from tupe_fairseq import UsageError


def build(arch="tupe_roberta", **arguments):
    """A three-layer model of odd sizes without dropout, as in fairseq's test_roberta."""
    sizes = {
        "encoder_layers": 3,
        "encoder_embed_dim": 12,
        "encoder_ffn_embed_dim": 14,
        "encoder_attention_heads": 4,
        "dropout": 0,
        "attention_dropout": 0,
        "encoder_layerdrop": 0,
        "tokens_per_sample": 256,
    }
    torch.manual_seed(0)
    return models.build_model(Namespace(arch=arch, **{**sizes, **arguments}), toy_data.Task(256))


def batch(size=2, length=9):
    tokens = 10 + torch.arange(length) % 100
    tokens[-1] = 2
    return tokens.repeat(size, 1)


def test_r3f(toy_sentence_data, tmp_path):
    importlib.import_module("fairseq.examples.rxf.rxf_src")
    flags = ("--num-classes", 2, "--criterion", "sentence_prediction_r3f")
    noise = ("--spectral-norm-classification-head", "--r3f-lambda", 1)
    assert finetune(toy_sentence_data["single"], tmp_path, *flags, *noise).exists()


def test_r3f_noise_reaches_the_encoder():
    """Stock RoBERTa drops the noised embeddings on the way."""
    model = build().eval()
    tokens = batch()
    embedded = model.encoder.sentence_encoder.embed_tokens(tokens)
    same, _ = model(tokens, features_only=True, token_embeddings=embedded)
    noised, _ = model(tokens, features_only=True, token_embeddings=embedded.flip(1))
    assert torch.equal(same, model(tokens, features_only=True)[0])
    assert not torch.allclose(same, noised)


def test_shared_and_untied_weights():
    tied = build()
    untied = build(untie_weights_roberta=True)
    for model, shared in ((tied, True), (untied, False)):
        words = model.encoder.sentence_encoder.embed_tokens.weight
        assert (words is model.encoder.lm_head.weight) is shared


@pytest.mark.parametrize("flag", ["mha_heads_to_keep", "ffn_blocks_to_remove"])
def test_adaptive_pruning_is_refused(flag):
    with pytest.raises(UsageError, match=rf"--{flag.replace('_', '-')} is 2, .*; remove the flag"):
        build(**{flag: 2})


def test_masked_tokens_alone_go_through_the_head():
    model = build().eval()
    tokens = batch()
    mask = torch.zeros_like(tokens, dtype=torch.bool)
    mask[0, 3] = mask[1, 5] = True
    torch.testing.assert_close(model(tokens, masked_tokens=mask)[0], model(tokens)[0][mask])
