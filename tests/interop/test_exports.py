"""Exports to huggingface and standalone: equal outputs, round trips, refusals."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.integration.commands import finetune, parameters, pretrain
from tests.tolerances import assert_close
from tupe_fairseq import TupeRobertaModel, UsageError
from tupe_fairseq.interop import keys
from tupe_fairseq.interop.convert import convert
from tupe_fairseq.interop.formats import huggingface, standalone
from tupe_fairseq.standalone.masked_lm import TUPEMaskedLM

safetensors = pytest.importorskip("safetensors", reason="safetensors is not installed (extra hf)")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def trained(toy_masked_lm_data, tmp_path_factory):
    """Trains models with given flags on demand; returns their directories."""
    made = {}

    def train(*flags):
        if flags not in made:
            made[flags] = tmp_path_factory.mktemp("model")
            pretrain(toy_masked_lm_data, made[flags], *flags, "--max-update", 3)
            (made[flags] / "dict.txt").write_bytes((toy_masked_lm_data / "dict.txt").read_bytes())
        return made[flags]

    return train


def tokens():
    ids = torch.randint(4, 200, (2, 30), generator=torch.Generator().manual_seed(0))
    ids[:, 0], ids[1, 20:] = 0, 1
    return ids


def outputs(directory):
    model = TupeRobertaModel.from_pretrained(directory).model
    with torch.no_grad():
        return model(tokens(), features_only=True)[0], model(tokens())[0]


def assert_same_words(actual, expected):
    for one, other in zip(actual, expected, strict=True):
        assert_close(one[tokens().ne(1)], other[tokens().ne(1)])


@pytest.mark.parametrize("untied", [(), ("--untie-weights-roberta",)], ids=["tied", "untied"])
def test_huggingface_and_back(trained, tmp_path, untied):
    directory = trained("--position-encoding", "learned", *untied)
    source = {path: path.read_bytes() for path in directory.iterdir()}
    convert(["--to", "huggingface", str(directory), "--out", str(tmp_path / "hf")])
    assert {path: path.read_bytes() for path in directory.iterdir()} == source
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["model_type"] == "roberta"
    convert(["--from", "huggingface", str(tmp_path / "hf"), "--out", str(tmp_path / "back")])
    back, before = (
        parameters(tmp_path / "back/model.pt"),
        parameters(directory / "checkpoint_last.pt"),
    )
    assert back.keys() == before.keys()
    assert all(torch.equal(back[name], before[name]) for name in before)
    assert_same_words(outputs(tmp_path / "back"), outputs(directory))


@pytest.mark.parametrize("untied", [(), ("--untie-weights-roberta",)], ids=["tied", "untied"])
def test_outputs_equal_transformers(trained, tmp_path, untied):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    directory = trained("--position-encoding", "learned", *untied)
    arguments = ["--to", "huggingface", str(directory), "--out", str(tmp_path / "hf"), "--check"]
    assert [line for line in convert(arguments) if line.startswith("logits")]
    model, info = transformers.RobertaForMaskedLM.from_pretrained(
        str(tmp_path / "hf"), output_loading_info=True
    )
    assert not any(info.values()), info
    with torch.no_grad():
        out = model.eval()(tokens(), attention_mask=tokens().ne(1), output_hidden_states=True)
    assert_same_words((out.hidden_states[-1], out.logits), outputs(directory))
    model.save_pretrained(str(tmp_path / "again"))
    back = [
        "--from",
        "huggingface",
        str(tmp_path / "again"),
        "--dict",
        str(directory / "dict.txt"),
    ]
    assert "logits" in convert([*back, "--out", str(tmp_path / "back"), "--check"])[-1]


def test_classifier_equals_transformers(toy_sentence_data, tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    data = toy_sentence_data["single"]
    flags = ("--num-classes", 2, "--position-encoding", "learned", "--no-save-optimizer-state")
    checkpoint = finetune(data, tmp_path / "model", *flags)
    (checkpoint.with_name("dict.txt")).write_bytes((data / "input0" / "dict.txt").read_bytes())
    head = "sentence_classification_head"
    arguments = ["--to", "huggingface", str(tmp_path / "model"), "--out", str(tmp_path / "hf")]
    assert "logits of the head" in convert([*arguments, "--head", head, "--check"])[-1]
    _, info = transformers.RobertaForSequenceClassification.from_pretrained(
        str(tmp_path / "hf"), output_loading_info=True
    )
    assert not any(info.values()), info
    with pytest.raises(UsageError, match=r"unknown --head .topic.; the model"):
        convert([*arguments[:-1], str(tmp_path / "no"), "--head", "topic"])


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        (
            {"num_attention_heads": 5},
            "invalid encoder_attention_heads in .*: 5 does not divide the width 32",
        ),
        ({"num_attention_heads": "4"}, "invalid encoder_attention_heads in .*: '4'"),
        ({"hidden_dropout_prob": "much"}, "invalid dropout in .*: 'much'"),
        ({"hidden_dropout_prob": None}, "invalid dropout in .*: None"),
        ({"hidden_act": "swish9"}, "unsupported hidden_act in .*: 'swish9'"),
        ({"hidden_act": "relu"}, "hidden_act in .*: 'relu'; it must be 'gelu'"),
        ({"layer_norm_eps": 1e-12}, "layer_norm_eps in .*: 1e-12; it must be 1e-05"),
        ({"pad_token_id": 0}, "pad_token_id in .*: 0; it must be 1"),
        ({"is_decoder": True}, "is_decoder in .*: True; it must be False"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type in .*: 'relative"),
        ({"model_type": "bert"}, "model_type is 'bert'"),
        ({"num_hidden_layers": 10**9}, None),
    ],
)
def test_invalid_configurations(trained, tmp_path, changes, part):
    """Sizes are taken from the parameters, so that wrong numbers do not allocate memory."""
    directory = trained("--position-encoding", "learned")
    convert(["--to", "huggingface", str(directory), "--out", str(tmp_path / "hf")])
    path = tmp_path / "hf" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    if part is None:
        assert huggingface.read(tmp_path / "hf").settings["encoder_layers"] == 2
        return
    with pytest.raises(UsageError, match=part):
        huggingface.read(tmp_path / "hf")


@pytest.mark.parametrize("flags", [(), ("--position-encoding", "learned")])
def test_outputs_equal_own_classes(trained, tmp_path, flags):
    pytest.importorskip("transformers", reason="transformers is not installed")
    directory = trained(*flags)
    arguments = ["--to", "huggingface", str(directory), "--out", str(tmp_path / "hf"), "--check"]
    assert "logits" in convert([*arguments, *(("--classes", "tupe") if flags else ())])[-1]
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["model_type"] == "tupe"
    with pytest.raises(UsageError, match="--classes is 'bert', but must be one of: roberta, tup"):
        convert([*arguments[:4], str(tmp_path / "no"), "--classes", "bert"])
    back = ["--from", "huggingface", str(tmp_path / "hf"), "--out", str(tmp_path / "back")]
    assert "logits" in convert([*back, "--check"])[-1]
    before = parameters(directory / "checkpoint_last.pt")
    after = parameters(tmp_path / "back" / "model.pt")
    assert all(torch.equal(after[name], before[name]) for name in before)


TUPE = {
    "tupe_r": (),
    "tupe_a": ("--position-encoding", "tupe_a"),
    "tied_cls": ("--tie-cls",),
    "buckets": ("--num-buckets", 8, "--max-distance", 16),
    "pre_norm": ("--encoder-normalize-before", "--activation-fn", "relu"),
    "untied": ("--untie-weights-roberta",),
    "window": ("--attention-window", 2, "--global-every", 2),
}


@pytest.mark.parametrize("flags", TUPE.values(), ids=TUPE)
def test_outputs_equal_standalone(trained, tmp_path, flags):
    directory = trained(*flags)
    arguments = ["--to", "standalone", str(directory), "--out", str(tmp_path / "plain"), "--check"]
    assert [line for line in convert(arguments) if line.startswith("logits")]
    model = TUPEMaskedLM.from_pretrained(tmp_path / "plain")
    with torch.no_grad():
        assert_same_words(model(tokens()), outputs(directory))
    saved = {
        n: v for n, v in parameters(directory / "checkpoint_last.pt").items() if "ver" not in n
    }
    back = keys.to_ours(model.state_dict(), standalone.table())
    assert back.keys() == saved.keys()
    assert all(torch.equal(back[name], saved[name]) for name in saved)


def test_a_failing_comparison_leaves_nothing(trained, tmp_path, monkeypatch):
    monkeypatch.setattr("tupe_fairseq.interop.check.TOLERANCE", -1.0)
    command = ["--to", "standalone", str(trained()), "--out", str(tmp_path / "out"), "--check"]
    with pytest.raises(UsageError, match="gives other outputs than its source: hidden states"):
        convert(command)
    assert not list(tmp_path.iterdir())


WITHOUT_FAIRSEQ = """
import sys
sys.modules["fairseq"] = sys.modules["fairseq_cli"] = None  # as if not installed
import torch
from tupe_fairseq.standalone.masked_lm import TUPEMaskedLM
hidden, logits = TUPEMaskedLM.from_pretrained(sys.argv[1])(torch.tensor([[0, 5, 6, 2]]))
assert hidden.shape == (1, 4, 32) and logits.shape == (1, 4, 205)
"""


def test_standalone_needs_no_fairseq(trained, tmp_path):
    convert(["--to", "standalone", str(trained()), "--out", str(tmp_path / "plain")])
    command = [sys.executable, "-c", WITHOUT_FAIRSEQ, str(tmp_path / "plain")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("target", "flags", "parts"),
    [
        ("roberta", (), ["position_encoding 'learned' only", "'tupe_r'", "--classes tupe"]),
        ("standalone", ("--position-encoding", "learned"), ["TUPE", "'learned'"]),
        ("standalone", ("--encoder-ffn-embed-dim", 48), ["multiple", "32", "48"]),
        # In transformers the head for masked words always uses gelu.
        ("huggingface", ("--position-encoding", "learned", "--activation-fn", "relu"), ["'relu'"]),
        (
            "huggingface",
            ("--position-encoding", "learned", "--encoder-normalize-before"),
            ["encoder_normalize_before False only", "True"],
        ),
        (
            "huggingface",
            ("--position-encoding", "learned", "--attention-window", 3),
            ["attention_window None only", "3"],
        ),
    ],
)
def test_models_without_counterpart(trained, tmp_path, target, flags, parts):
    words = ["huggingface", "--classes", "roberta"] if target == "roberta" else [target]
    with pytest.raises(UsageError) as error:
        convert(["--to", *words, str(trained(*flags)), "--out", str(tmp_path / "out")])
    assert all(part in str(error.value) for part in parts), str(error.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("target", ["huggingface", "standalone"])
def test_parameters_that_do_not_fit(trained, tmp_path, target):
    """Parameters without a counterpart are refused, and so are missing ones."""
    directory = trained(*(("--position-encoding", "learned") if target == "huggingface" else ()))
    whole = torch.load(directory / "checkpoint_last.pt", weights_only=True)
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "dict.txt").write_bytes((directory / "dict.txt").read_bytes())
    bias = "encoder.sentence_encoder.layers.1.fc2.bias"
    noise = "encoder.sentence_encoder.quant_noise.weight"
    for changes, parts in (
        ({bias: None}, ["1 missing", "layers.1", "bias"]),
        ({noise: torch.zeros(32, 32)}, ["1 unknown", "quant_noise.weight"]),
        ({bias: torch.zeros(3)}, ["1 of another shape", "(3,) instead of (32,)"]),
    ):
        model = {n: v for n, v in (whole["model"] | changes).items() if v is not None}
        torch.save(whole | {"model": model}, tmp_path / "m" / "model.pt")
        with pytest.raises(UsageError) as error:
            convert(["--to", target, str(tmp_path / "m"), "--out", str(tmp_path / "out")])
        assert all(part in str(error.value) for part in parts), str(error.value)
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("target", ["huggingface", "standalone"])
@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"activation_fn": None}, "activation_fn"),
        ({"dropout": "much"}, "invalid dropout in .*: 'much'"),
        ({"encoder_attention_heads": 5}, "invalid encoder_attention_heads in .*: 5"),
        ({"encoder_layers": 10**9}, None),
        ({"encoder_embed_dim": "x"}, None),
        ({"layernorm_embedding": None}, "layernorm_embedding"),
        ({"max_positions": 10**12}, r"embed_positions.weight .* instead of .1000000000"),
        ({"num_buckets": "many"}, "invalid settings of the model"),
    ],
)
def test_invalid_recorded_settings(trained, tmp_path, target, changes, part):
    """Sizes are taken from the parameters; errors name other settings that are missing."""
    encoding = ("--position-encoding", "learned") if target == "huggingface" else ()
    directory = trained(*encoding)
    state = torch.load(directory / "checkpoint_last.pt", weights_only=True)
    settings = {**vars(state["cfg"]["model"]), **changes}
    state["cfg"]["model"] = {n: v for n, v in settings.items() if v is not None}
    (tmp_path / "m").mkdir()
    torch.save(state, tmp_path / "m" / "model.pt")
    (tmp_path / "m" / "dict.txt").write_bytes((directory / "dict.txt").read_bytes())
    command = ["--to", target, str(tmp_path / "m"), "--out", str(tmp_path / "out")]
    if part is None or (encoding and ("max_positions" in changes or "num_buckets" in changes)):
        convert(command)
        return
    with pytest.raises(UsageError, match=part):
        convert(command)


def test_damaged_exports(trained, tmp_path):
    def refused(load, *parts):
        with pytest.raises(UsageError) as error:
            load()
        assert all(part in str(error.value) for part in parts), str(error.value)
        assert "\n" not in str(error.value)

    convert(["--to", "standalone", str(trained()), "--out", str(tmp_path / "plain")])
    config, tensors = tmp_path / "plain/config.json", tmp_path / "plain/model.safetensors"

    def load():
        return TUPEMaskedLM.from_pretrained(tmp_path / "plain")

    whole = tensors.read_bytes()
    tensors.write_bytes(whole[:-100])
    refused(load, "model.safetensors cannot be loaded as safetensors")
    tensors.unlink()
    refused(load, "cannot read", "model.safetensors")
    tensors.write_bytes(whole)
    good = json.loads(config.read_text())
    config.write_text(json.dumps(good | {"vocab_size": 7}))
    refused(load, "3 of another shape", "embed_tokens.weight")
    config.write_text(json.dumps(good | {"encoder": {"size": 3}}))
    refused(load, "invalid settings in", "config.json", "size")
    # Numbers that would exceed the memory.
    for key, value in {"num_layers": 10**9, "d_model": 2**40, "max_len": 10**12}.items():
        config.write_text(json.dumps(good | {"encoder": good["encoder"] | {key: value}}))
        refused(load, str(tmp_path / "plain"))
    for text in ("{", "[]", '{"format": "other"}'):
        config.write_text(text)
        refused(load, "config.json")
    config.unlink()
    refused(load, "cannot read", "config.json")
    refused(lambda: huggingface.read(tmp_path / "plain"), "cannot read", "config.json")
    config.write_text(json.dumps({"model_type": "bert", "hidden_size": 3}))
    refused(lambda: huggingface.read(tmp_path / "plain"), "config.json is not a configuration")
