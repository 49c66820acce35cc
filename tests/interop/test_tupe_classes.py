"""Directories for transformers with their own code: every encoding, there and back, refusals."""

import ast
import json
import os
import subprocess
import sys

import pytest
import torch

from tests.tolerances import FORWARD, assert_close
from tupe_fairseq import UsageError
from tupe_fairseq.interop import keys, sources
from tupe_fairseq.interop.check import outputs_of
from tupe_fairseq.interop.dictionaries import Entry
from tupe_fairseq.interop.formats import huggingface
from tupe_fairseq.interop.model_files import write_tensors
from tupe_fairseq.interop.models import Converted, build
from tupe_fairseq.position import POSITION_ENCODINGS, PositionEncoding, register_position_encoding

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

ENCODERS = [name for name, cls in POSITION_ENCODINGS.items() if not cls.causal_only]
ENTRIES = [Entry(f"w{i}", 1) for i in range(40)]
HEAD = keys.HEAD


def model(encoding: str, head: bool = False, **changes):
    """A tiny model with parameters large enough for positions to matter, and its conversion."""
    settings = {
        **{"encoder_layers": 2, "encoder_embed_dim": 32, "encoder_ffn_embed_dim": 48},
        **{"encoder_attention_heads": 4, "max_positions": 24, "position_encoding": encoding},
        **{"layernorm_embedding": True, "encoder_normalize_before": False, "dropout": 0.1},
        **{"attention_dropout": 0.1, "activation_dropout": 0.0, "pooler_dropout": 0.2},
        **{"activation_fn": "gelu", "pooler_activation_fn": "tanh"},
        "untie_weights_roberta": False,
    } | changes
    torch.manual_seed(0)
    built = build(settings, ENTRIES, {})
    if head:
        built.register_classification_head(HEAD, 3)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    return built.eval(), Converted(settings, built.state_dict(), ENTRIES)


def tokens() -> torch.Tensor:
    ids = torch.randint(4, 40, (2, 20), generator=torch.Generator().manual_seed(0))
    ids[:, 0], ids[1, 9:] = 0, 1
    return ids


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    """A directory of every encoding, with ids and the logits that fairseq's model gives.

    Returns:
        Their folder, and what they were written from by name.
    """
    folder, all_converted = tmp_path_factory.mktemp("hf"), {}
    for name in ENCODERS:
        built, converted = model(name)
        all_converted[name] = converted
        huggingface.write(converted, folder / name, classes="tupe")
        with torch.no_grad():
            logits = built(tokens())[0]
        write_tensors(folder / name / "expected", {"ids": tokens(), "logits": logits})
    return folder, all_converted


#: Loads all directories of a folder without this package and without fairseq.
ALONE = """
import json, sys
for name in ("tupe_fairseq", "fairseq"):
    sys.modules[name] = None
import torch
from pathlib import Path
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM
found = {}
for folder in sorted(Path(sys.argv[1]).iterdir()):
    expected = load_file(folder / "expected")
    model = AutoModelForMaskedLM.from_pretrained(folder, trust_remote_code=True).eval()
    assert type(model).__module__.startswith("transformers_modules.")
    seen = expected["ids"].ne(1)
    with torch.no_grad():
        error = (model(expected["ids"]).logits - expected["logits"])[seen].abs().max().item()
    found[folder.name] = error / expected["logits"].abs().max().item()
print(json.dumps(found))
"""


@pytest.mark.slow
def test_code_of_the_directory_gives_equal_outputs(directories, tmp_path):
    environment = {**os.environ, "HF_MODULES_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-W", "ignore", "-c", ALONE, str(directories[0])]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.keys() == set(ENCODERS)
    far = {name: error for name, error in found.items() if error > FORWARD[torch.float32]}
    assert not far


@pytest.mark.parametrize("name", ENCODERS)
def test_there_and_back(directories, name):
    """Parameters and settings, bit for bit."""
    folder, converted = directories[0] / name, directories[1][name]
    back = huggingface.read(folder)
    assert back.state.keys() == converted.state.keys()
    for key, value in converted.state.items():
        assert torch.equal(back.state[key], value), key
    assert back.settings | converted.settings == back.settings


@pytest.mark.parametrize("name", list(POSITION_ENCODINGS))
def test_files_import_only_each_other(name):
    files = sources.collect(name)
    for file, text in files.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                assert not any("tupe_fairseq" in alias.name for alias in node.names)
            if not isinstance(node, ast.ImportFrom):
                continue
            assert node.level <= 1, f"{file}: {ast.unparse(node)}"
            names = [node.module] if node.module else [alias.name for alias in node.names]
            if node.level:
                assert all(f"{each}.py" in files for each in names), ast.unparse(node)
            else:
                assert not names[0].startswith(("tupe_fairseq", "fairseq")), file


def test_encodings_of_other_packages_are_refused(monkeypatch):
    monkeypatch.setattr(POSITION_ENCODINGS, "_entries", dict(POSITION_ENCODINGS.items()))
    register_position_encoding("own")(type("Own", (PositionEncoding,), {"__module__": "mine"}))
    with pytest.raises(UsageError, match="'own' of mine, whose code cannot be written"):
        sources.collect("own")


@torch.no_grad()
def test_a_regression_there_and_back(tmp_path):
    """As of STS-B: one value, the squared error as its loss."""
    built, converted = model("tupe_a")
    built.register_classification_head(HEAD, 1)
    built.eval()
    converted.state = built.state_dict()
    huggingface.write(converted, tmp_path / "hf", HEAD)
    (actual,) = huggingface.outputs(tmp_path / "hf", converted, HEAD)(tokens())
    (expected,) = outputs_of(built, HEAD)(tokens())
    assert expected.shape == (2, 1)
    assert_close(actual, expected)
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert config["problem_type"] == "regression"
    back = huggingface.read(tmp_path / "hf").state
    name = f"classification_heads.{HEAD}.out_proj.weight"
    assert torch.equal(back[name], converted.state[name])


def test_a_classifier_there_and_back(tmp_path):
    built, converted = model("tupe_r", head=True)
    huggingface.write(converted, tmp_path / "hf", HEAD)
    theirs = huggingface.outputs(tmp_path / "hf", converted, HEAD)
    with torch.no_grad():
        (actual,), (expected,) = theirs(tokens()), outputs_of(built, HEAD)(tokens())
    assert_close(actual, expected)
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert config["problem_type"] == "single_label_classification"
    assert len(config["id2label"]) == 3
    back = huggingface.read(tmp_path / "hf")
    assert back.head == HEAD
    assert "the source has no head for masked tokens: the new one is untrained" in back.notes
    assert back.state.keys() == converted.state.keys()
    for key, value in converted.state.items():
        if not key.startswith("encoder.lm_head.") or key.endswith("head.weight"):
            assert torch.equal(back.state[key], value), key
    with pytest.raises(UsageError, match=r"unknown --head 'topic'; .* sentence_classification_he"):
        huggingface.write(converted, tmp_path / "no", "topic")


def test_saved_by_transformers_in_several_files(tmp_path):
    """After training there: other values, `save_pretrained`, no dict.txt."""
    from tupe_fairseq.huggingface import TupeForMaskedLM

    _, converted = model("rope", untie_weights_roberta=True)
    huggingface.write(converted, tmp_path / "hf")
    trained = TupeForMaskedLM.from_pretrained(tmp_path / "hf")
    with torch.no_grad():
        trained.tupe.embed_tokens.weight.mul_(2)
    trained.save_pretrained(tmp_path / "again", max_shard_size="10KB")
    index = tmp_path / "again" / "model.safetensors.index.json"
    assert index.is_file()
    back = huggingface.read(tmp_path / "again", tmp_path / "hf" / "dict.txt")
    words = "encoder.sentence_encoder.embed_tokens.weight"
    assert torch.equal(back.state[words], 2 * converted.state[words])
    assert back.settings["untie_weights_roberta"]
    index.write_text(json.dumps({"weight_map": {"a": "../hf/model.safetensors"}}))
    with pytest.raises(UsageError, match=r"cannot read .*again/model\.safetensors"):
        huggingface.read(tmp_path / "again", tmp_path / "hf" / "dict.txt")


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"num_attention_heads": 5}, "invalid encoder_attention_heads in .*: 5"),
        ({"hidden_dropout_prob": "much"}, "invalid dropout in .*: 'much'"),
        ({"hidden_act": None}, "invalid activation_fn in .*: None"),
        ({"position_encoding": "tupe"}, "'tupe', but the known ones are"),
        ({"position_encoding": "t5"}, "unknown"),
        ({"position_options": {"steps": 1}}, "invalid position_options in .*steps"),
        ({"max_position_embeddings": 10**12}, "max_positions 10+ or an option"),
        ({"is_decoder": True}, "embeddings for 45"),
        ({"attention_window": "far"}, "invalid attention_window in .*: 'far'"),
    ],
)
def test_invalid_configurations(directories, tmp_path, changes, part):
    for file in ("model.safetensors", "dict.txt"):
        (tmp_path / file).write_bytes((directories[0] / "tupe_r" / file).read_bytes())
    config = json.loads((directories[0] / "tupe_r" / "config.json").read_text()) | changes
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match=part) as error:
        huggingface.read(tmp_path)
    assert "\n" not in str(error.value)


def test_functions_without_counterpart(tmp_path):
    _, converted = model("tupe_r", activation_fn="gelu_accurate")
    with pytest.raises(UsageError, match=r"activation_fn gelu, relu, tanh only.*gelu_accurate"):
        huggingface.write(converted, tmp_path / "out")
    assert not list(tmp_path.iterdir())


@torch.no_grad()
def test_windows_go_along_there_and_back(tmp_path):
    window = {"attention_window": 2, "global_every": 2}
    built, converted = model("rope", **window)
    huggingface.write(converted, tmp_path / "hf")
    found = huggingface.outputs(tmp_path / "hf", converted, None)(tokens())
    seen = tokens().ne(1)
    for actual, expected in zip(found, outputs_of(built, None)(tokens()), strict=True):
        assert_close(actual[seen], expected[seen])
    assert window.items() <= huggingface.read(tmp_path / "hf").settings.items()
