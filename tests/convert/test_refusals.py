"""Configurations, checkpoints and directories that cannot be converted: one line says why."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch

from tests import ROOT
from tests.convert import samples
from tests.convert.samples import refused, run
from tests.fairseq_commands import train_translation
from tupe_fairseq.convert.architectures import ARCHITECTURES
from tupe_fairseq.convert.formats import huggingface, onnx

pytest.importorskip("transformers", reason="transformers is not installed")

KINDS = ("bert", "roberta", "tupe")


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    """A directory of transformers of each kind."""
    folder = tmp_path_factory.mktemp("hf")
    samples.bert(folder / "bert")
    samples.roberta(folder / "roberta")
    huggingface.write(samples.masked_lm("tupe_r")[1], folder / "tupe")
    return folder


@pytest.fixture
def copy(directories, tmp_path):
    return lambda kind: Path(shutil.copytree(directories / kind, tmp_path / kind))


@pytest.mark.parametrize(
    ("kinds", "changes", "part"),
    [
        (KINDS[:2], {"num_attention_heads": 5}, "is not a multiple of the number of attention"),
        (KINDS[2:], {"num_attention_heads": 5}, "5 heads do not divide"),
        (KINDS, {"hidden_dropout_prob": "much"}, "hidden_dropout_prob"),
        (KINDS, {"hidden_dropout_prob": None}, "hidden_dropout_prob"),
        (KINDS[:2], {"hidden_act": "relu"}, "unsupported hidden_act in"),
        (KINDS[2:], {"hidden_act": None}, "hidden_act is None, but must be one of"),
        (KINDS[:2], {"position_embedding_type": "relative_key"}, "position_embedding_type in"),
        (
            KINDS,
            {"is_decoder": True},
            "converts language models of this package is tupe_fairseq 0.3.0",
        ),
        (["roberta"], {"pad_token_id": 0}, "unsupported pad_token_id"),
        (["roberta"], {"model_type": "bert"}, "model.safetensors lacks bert."),
        (["tupe"], {"position_encoding": "tupe"}, "'tupe', but the known ones are"),
        (["tupe"], {"position_encoding": "t5"}, "invalid position_options in"),
        (["tupe"], {"position_options": {"steps": 1}}, "invalid position_options in"),
        (["tupe"], {"max_position_embeddings": 10**12}, "position_embeddings 1000000000000 and"),
        (["tupe"], {"embedding_scale": 3}, "invalid embedding_scale in"),
        (
            KINDS,
            {"model_type": "vit"},
            f"supported are: {', '.join(each.model_type for each in ARCHITECTURES)}",
        ),
        (KINDS, {"model_type": ["bert"]}, "config.json cannot be read"),
        (KINDS, {"num_hidden_layers": 10**9}, "has 2 layers, but config.json beside it has"),
        (KINDS, {"vocab_size": 3}, "by config.json beside it"),
    ],
)
def test_configurations(kinds, changes, part, copy, tmp_path):
    """Wrong numbers are found before a model is built, so that they do not allocate memory."""
    for kind in kinds:
        folder = copy(kind)
        samples.change_config(folder, changes)
        with refused(part):
            run("--from", "huggingface", folder, tmp_path / f"{kind}-out")


def test_damaged_directories(copy):
    folder = copy("tupe")
    config = folder / "config.json"
    tensors = folder / "model.safetensors"
    whole = tensors.read_bytes()
    tensors.write_bytes(whole[:-100])
    with refused("model.safetensors cannot be loaded as safetensors"):
        huggingface.read(folder)
    tensors.unlink()
    with refused("has neither model.safetensors nor"):
        huggingface.read(folder)
    for saved, part in (
        ([1.0], "it is not a table of parameters"),
        ({"model": print}, "it holds print, which"),
    ):
        torch.save(saved, folder / "pytorch_model.bin")
        with refused("pytorch_model.bin cannot be loaded", part):
            huggingface.read(folder)
    tensors.write_bytes(whole)
    for text in ("{", "[]", "[" * 60_000, '{"model_type": "other"}'):
        config.write_text(text)
        with refused("config.json"):
            huggingface.read(folder)
    config.unlink()
    with refused(f"there is no {config}: give a folder"):
        huggingface.read(folder)


def test_parameters_of_other_shapes(tmp_path):
    """Scalars, other sizes and missing parameters."""
    kind = "ForSequenceClassification"
    source = samples.bert(tmp_path / "source", kind, num_hidden_layers=1)
    path = source / "model.safetensors"
    whole = safetensors.torch.load_file(path)
    for name in whole:
        for value in (None, torch.zeros(()), torch.zeros(3, 5)):
            changed = {n: v for n, v in (whole | {name: value}).items() if v is not None}
            safetensors.torch.save_file(changed, path)
            with refused(""):
                run("--from", "huggingface", source, tmp_path / "out")


@pytest.mark.parametrize(
    ("text", "part"),
    [(None, "has no tokenizer: save it there"), ("{", "cannot be"), ("[]", "cannot be read")],
)
def test_tokenizers(text, part, copy, tmp_path):
    folder = copy("bert")
    path = folder / "tokenizer.json"
    path.unlink() if text is None else path.write_text(text)
    with refused(part):
        run("--from", "huggingface", folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_tokenizer_without_a_mask(copy, tmp_path):
    """The dictionary has a symbol for each row: fairseq needs its mask among them."""
    folder = copy("bert")
    path = folder / "tokenizer.json"
    path.write_text(path.read_text().replace("[MASK]", "mask"))
    (folder / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "PreTrainedTokenizerFast",'
        '"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}'
    )
    with refused("has no mask token"):
        run("--from", "huggingface", folder, tmp_path / "out")
    run("--from", "huggingface", folder, tmp_path / "out", "--to", "huggingface")


def test_more_tokens_than_rows(copy):
    folder = copy("bert")
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("\n".join(["[UNK]", *(f"w{i}" for i in range(60))]))
    with refused("tokens, but its model has 60 rows"):
        huggingface.read(folder)


def test_options_that_do_not_apply(directories):
    with refused("--dict does not apply to bert"):
        huggingface.read(directories / "bert", directories / "bert" / "dict.txt")
    with refused("'tupe', but the known ones are"):
        huggingface.read(directories / "bert", position_encoding="tupe")
    for name in ("rope", "learned"):
        with refused("has an encoding of its own"):
            huggingface.read(directories / "tupe", position_encoding=name)


LEARNED = ("--position-encoding", "learned")
ROBERTA = ("--classes", "roberta")


@pytest.mark.parametrize(
    ("flags", "options", "parts"),
    [
        ((), ROBERTA, ["position_encoding 'learned' only", "--classes tupe"]),
        (
            (),
            ("--classes", "gpt2"),
            ["--classes is 'gpt2', but must be one of rob"],
        ),
        ((), ("--head", "topic"), ["unknown --head 'topic'", "heads are: none"]),
        # In transformers the language modeling head always uses gelu.
        ((*LEARNED, "--activation-fn", "relu"), ROBERTA, ["'relu'"]),
        ((*LEARNED, "--encoder-normalize-before"), ROBERTA, ["normalize_before False only"]),
        ((*LEARNED, "--attention-window", 3), ROBERTA, ["attention_window None only", "3"]),
    ],
)
def test_models_and_options_without_counterpart(trained, tmp_path, flags, options, parts):
    directory = trained(*flags)
    with refused(*parts):
        run("--to", "huggingface", directory, tmp_path / "out", *options)
    assert not list(tmp_path.iterdir())


def test_functions_without_counterpart(tmp_path):
    with refused("one of: gelu, relu, tanh", "gelu_accurate"):
        converted = samples.masked_lm("tupe_r", activation_fn="gelu_accurate")[1]
        huggingface.write(converted, tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def changed(tmp_path):
    """Converts a directory with another checkpoint."""

    def change(directory, state):
        (tmp_path / "m").mkdir(exist_ok=True)
        torch.save(state, tmp_path / "m" / "model.pt")
        shutil.copy(directory / "dict.txt", tmp_path / "m")
        run("--to", "huggingface", tmp_path / "m", tmp_path / "out")

    return change


@pytest.mark.parametrize("encoding", ["learned", "tupe_r"])
def test_parameters_without_counterpart(trained, changed, encoding):
    directory = trained("--position-encoding", encoding)
    whole = torch.load(directory / "checkpoint_last.pt", weights_only=True)
    bias = "encoder.sentence_encoder.layers.1.fc2.bias"
    noise = "encoder.sentence_encoder.quant_noise.weight"
    for changes, parts in (
        ({bias: None}, ["1 missing", ".1.", "bias"]),
        ({noise: torch.zeros(32, 32)}, ["1 unknown", "quant_noise.weight"]),
        ({bias: torch.zeros(3)}, ["1 of another shape", "(3,) instead of (32,)"]),
    ):
        model = {n: v for n, v in (whole["model"] | changes).items() if v is not None}
        with refused(*parts):
            changed(directory, whole | {"model": model})


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"activation_fn": None}, "activation_fn"),
        ({"dropout": "much"}, "hidden_dropout_prob is 'much'"),
        ({"encoder_attention_heads": 5}, "attention heads must divide the model width"),
        ({"layernorm_embedding": None}, "layernorm_embedding"),
        ({"num_buckets": "many"}, "--num-buckets must be a whole number, but is 'many'"),
        ({"max_positions": 10**12}, "with max_position_embeddings 1000000000000 and"),
        (
            {"encoder_layers": 10**9},
            "records encoder_layers 1000000000, but its parameters",
        ),
        ({"encoder_embed_dim": "x"}, "records encoder_embed_dim 'x', but its parameters show 32"),
    ],
)
def test_recorded_settings(trained, changed, changes, part):
    """Sizes must be those of the parameters; errors name settings that are missing."""
    directory = trained()
    state = torch.load(directory / "checkpoint_last.pt", weights_only=True)
    settings = {**vars(state["cfg"]["model"]), **changes}
    state["cfg"]["model"] = {n: v for n, v in settings.items() if v is not None}
    with refused(part):
        changed(directory, state)


@pytest.mark.parametrize("kind", ["huggingface", "onnx"])
def test_models_that_are_no_encoders(kind, toy_language_model, toy_translation_data, tmp_path):
    with refused("is a language model", "converts those of this package is tupe_fairseq 0.3.0"):
        run("--to", kind, toy_language_model, tmp_path / "out")
    train_translation(toy_translation_data, tmp_path / "model", "--max-update", 1)
    with refused("is a translation model"):
        run("--to", kind, tmp_path / "model", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_onnx_with_an_older_torch(tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion("2.9.1+cu130"))
    with refused("--to onnx needs torch 2.13 or newer, but 2.9.1+cu130 is installed."):
        onnx.write(samples.masked_lm("tupe_r")[1], tmp_path / "out")


WITHOUT_FAIRSEQ = """
import runpy, sys
sys.modules["fairseq"] = None
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""


def test_conversion_without_fairseq(directories, tmp_path):
    """From transformers to transformers; for others, one line names it."""
    command = [sys.executable, "-c", WITHOUT_FAIRSEQ, ROOT / "scripts/convert_checkpoint.py"]
    source = ("--from", "huggingface", directories / "bert")
    to = ("--to", "huggingface")
    words = (*source, *to, "--classes", "tupe", "--out", tmp_path / "out", "--check")
    done = subprocess.run([*command, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "logits: largest difference" in done.stdout
    words = (*source, "--out", tmp_path / "b")
    done = subprocess.run([*command, *words], capture_output=True, text=True)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: conversion needs fairseq, which is not installed: ")
