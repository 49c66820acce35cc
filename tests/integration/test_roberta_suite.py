"""What fairseq's own test-suite does with RoBERTa, with our architecture in its place."""

from __future__ import annotations

import importlib
from argparse import Namespace

import pytest
import torch
from fairseq import models

from tests import toy_data
from tests.integration.commands import COMMON, SMALL, finetune, pretrain, train


class Task:
    """As much of a task as building a model needs."""

    source_dictionary = target_dictionary = toy_data.word_dictionary()

    def max_positions(self):
        return 256


def build(**arguments):
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
    return models.build_model(Namespace(arch="tupe_roberta", **{**sizes, **arguments}), Task())


def batch(size=2, length=9):
    tokens = 10 + torch.arange(length) % 100
    tokens[-1] = 2
    return tokens.repeat(size, 1)


def test_masked_lm(toy_masked_lm_data, tmp_path):
    assert pretrain(toy_masked_lm_data, tmp_path).exists()


@pytest.mark.parametrize(("kind", "classes"), [("single", 2), ("pairs", 2), ("mnli", 3)])
def test_sentence_prediction(toy_sentence_data, tmp_path, kind, classes):
    splits = ("--valid-subset", "valid,valid1") if kind == "mnli" else ()
    data = toy_sentence_data[kind]
    assert finetune(data, tmp_path, "--num-classes", classes, *splits).exists()


@pytest.mark.parametrize("targets", [1, 3])
def test_regression(tmp_path, targets):
    data = toy_data.write_sentences(tmp_path / "data", targets=targets)
    flags = ("--num-classes", targets, "--regression-target")
    assert finetune(data, tmp_path / "model", *flags).exists()


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


def test_sentence_ranking(tmp_path):
    """The task of RACE and CommonsenseQA: which of two options follows."""
    data, lines = tmp_path / "data", [f"w{i} w{i + 1}" for i in range(64)]
    (data / "label").mkdir(parents=True)
    for split in ("train", "valid"):
        (data / "label" / f"{split}.label").write_text("0\n1\n" * 32)
        for side in ("input0", "input1", "input2"):
            toy_data.write_split(data / side, split, lines, toy_data.word_dictionary())
    task = ("--task", "sentence_ranking", "--criterion", "sentence_ranking", "--num-classes", 2)
    more = ("--init-token", 0, "--separator-token", 2, "--max-positions", 64, "--max-epoch", 1)
    assert train(data, *task, *more, *COMMON, *SMALL, "--save-dir", tmp_path / "m").exists()


def test_shared_and_untied_weights():
    tied, untied = build(), build(untie_weights_roberta=True)
    for model, shared in ((tied, True), (untied, False)):
        words = model.encoder.sentence_encoder.embed_tokens.weight
        assert (words is model.encoder.lm_head.weight) is shared


def test_longest_input():
    model = build()
    assert model.max_positions() == model.encoder.max_positions() == 256
    logits, _ = model(batch(1, 256))
    assert logits.shape == (1, 256, len(Task.source_dictionary))


@pytest.mark.parametrize("size", [1, 2])
def test_forward_backward(size):
    model = build()
    logits, extra = model(batch(size), return_all_hiddens=True)
    assert logits.shape == (size, 9, len(Task.source_dictionary))
    assert [state.shape for state in extra["inner_states"]] == [(9, size, 12)] * 4
    logits.sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_batching():
    model = build().eval()
    one, two = model(batch(1))[0], model(batch(2))[0]
    torch.testing.assert_close(two[0], two[1])
    torch.testing.assert_close(one[0], two[0])


def test_regularization_for_adaptive_pruning():
    model = build(mha_reg_scale_factor=0.000375, ffn_reg_scale_factor=0.000375)
    loss = model._get_adaptive_head_loss() + model._get_adaptive_ffn_loss()
    loss.backward()
    layer = model.encoder.sentence_encoder.layers[0]
    assert layer.self_attn.q_proj.weight.grad.abs().sum() > 0
    assert layer.fc1.weight.grad.abs().sum() > 0


def test_masked_tokens_alone_go_through_the_head():
    model = build().eval()
    tokens = batch()
    mask = torch.zeros_like(tokens, dtype=torch.bool)
    mask[0, 3] = mask[1, 5] = True
    torch.testing.assert_close(model(tokens, masked_tokens=mask)[0], model(tokens)[0][mask])
