"""What fairseq's own test-suite does with RoBERTa, with our architecture in its place."""

import importlib
from argparse import Namespace

import pytest
import torch
from fairseq import models

from tests import toy_data
from tests.fairseq_commands import FINETUNE, finetune, parameters, pretrain
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
    tied, untied = build(), build(untie_weights_roberta=True)
    for model, shared in ((tied, True), (untied, False)):
        words = model.encoder.sentence_encoder.embed_tokens.weight
        assert (words is model.encoder.lm_head.weight) is shared


def test_regularization_for_adaptive_pruning():
    model = build(mha_reg_scale_factor=0.000375, ffn_reg_scale_factor=0.000375)
    loss = model._get_adaptive_head_loss() + model._get_adaptive_ffn_loss()
    loss.backward()
    layer = model.encoder.sentence_encoder.layers[0]
    assert layer.self_attn.q_proj.weight.grad.abs().sum() > 0
    assert layer.fc1.weight.grad.abs().sum() > 0


def test_pruning_of_feed_forward_units():
    """As fairseq's test of AdaPrune; the model stays the same but for the units removed."""
    model, stock = build().eval(), build("roberta")
    for layer, theirs in zip(
        model.encoder.sentence_encoder.layers, stock.encoder.sentence_encoder.layers, strict=True
    ):
        # fairseq 0.12.2's layer loads no part of itself alone.
        theirs.fc1.load_state_dict(layer.fc1.state_dict())
        theirs.fc2.load_state_dict(layer.fc2.state_dict())
        removed = layer._get_fc_rank(remove_num=2)
        assert removed == theirs._get_fc_rank(remove_num=2)
        for each in (layer, theirs):
            each._prune_fc_layer(remove_index=removed)
        assert layer.fc1.out_features == layer.fc2.in_features == 12
        x = torch.randn(5, 12)
        assert torch.equal(layer.fc2(layer.fc1(x)), theirs.fc2(theirs.fc1(x)))


def test_pruned_checkpoints_are_trained_on(toy_masked_lm_data, tmp_path):
    """fairseq prunes the new model before it restores the pruned checkpoint."""
    checkpoint = pretrain(toy_masked_lm_data, tmp_path / "whole", "--max-update", 1)
    state = torch.load(checkpoint, weights_only=True)
    layers = "encoder.sentence_encoder.layers."
    for key, value in state["model"].items():
        if key.startswith(layers) and ".fc1." in key:
            state["model"][key] = value[:60].clone()
        elif key.startswith(layers) and key.endswith(".fc2.weight"):
            state["model"][key] = value[:, :60].clone()
    torch.save(state, tmp_path / "pruned.pt")
    flags = ("--restore-file", tmp_path / "pruned.pt", *FINETUNE, "--ffn-blocks-to-remove", 4)
    again = pretrain(toy_masked_lm_data, tmp_path / "pruned", *flags, "--max-update", 1)
    assert len(parameters(again)[f"{layers}0.fc1.bias"]) == 60


def test_heads_cannot_be_pruned():
    with pytest.raises(UsageError, match=r"--mha-heads-to-keep is 2, .* all layers share"):
        build(mha_heads_to_keep=2)


def test_masked_tokens_alone_go_through_the_head():
    model = build().eval()
    tokens = batch()
    mask = torch.zeros_like(tokens, dtype=torch.bool)
    mask[0, 3] = mask[1, 5] = True
    torch.testing.assert_close(model(tokens, masked_tokens=mask)[0], model(tokens)[0][mask])
