"""Models that cannot be written in another format, and damaged exports."""

import json

import pytest
import torch

from tupe_fairseq import UsageError
from tupe_fairseq.interop.convert import convert
from tupe_fairseq.interop.formats import huggingface


@pytest.mark.parametrize(
    ("target", "flags", "parts"),
    [
        ("roberta", (), ["position_encoding 'learned' only", "'tupe_r'", "--classes tupe"]),
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


@pytest.mark.parametrize("encoding", ["learned", "tupe_r"])
def test_parameters_that_do_not_fit(trained, tmp_path, encoding):
    """Parameters without a counterpart are refused, and so are missing ones."""
    directory = trained("--position-encoding", encoding)
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
            convert(["--to", "huggingface", str(tmp_path / "m"), "--out", str(tmp_path / "out")])
        assert all(part in str(error.value) for part in parts), str(error.value)
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("encoding", ["learned", "tupe_r"])
@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"activation_fn": None}, "activation_fn"),
        ({"dropout": "much"}, "invalid dropout in .*: 'much'"),
        ({"encoder_attention_heads": 5}, "invalid encoder_attention_heads in .*: 5"),
        ({"encoder_layers": 10**9}, None),
        ({"encoder_embed_dim": "x"}, None),
        ({"layernorm_embedding": None}, "layernorm_embedding"),
        ({"num_buckets": "many"}, "--num-buckets must be a whole number, but is 'many'"),
    ],
)
def test_invalid_recorded_settings(trained, tmp_path, encoding, changes, part):
    """Sizes are taken from the parameters; errors name other settings that are missing."""
    directory = trained("--position-encoding", encoding)
    state = torch.load(directory / "checkpoint_last.pt", weights_only=True)
    settings = {**vars(state["cfg"]["model"]), **changes}
    state["cfg"]["model"] = {n: v for n, v in settings.items() if v is not None}
    (tmp_path / "m").mkdir()
    torch.save(state, tmp_path / "m" / "model.pt")
    (tmp_path / "m" / "dict.txt").write_bytes((directory / "dict.txt").read_bytes())
    command = ["--to", "huggingface", str(tmp_path / "m"), "--out", str(tmp_path / "out")]
    if part is None or (encoding == "learned" and "num_buckets" in changes):
        convert(command)
        return
    with pytest.raises(UsageError, match=part):
        convert(command)


def test_damaged_exports(trained, tmp_path):
    def refused(*parts):
        with pytest.raises(UsageError) as error:
            huggingface.read(tmp_path / "hf")
        assert all(part in str(error.value) for part in parts), str(error.value)
        assert "\n" not in str(error.value)

    convert(["--to", "huggingface", str(trained()), "--out", str(tmp_path / "hf")])
    config, tensors = tmp_path / "hf/config.json", tmp_path / "hf/model.safetensors"
    whole = tensors.read_bytes()
    tensors.write_bytes(whole[:-100])
    refused("model.safetensors cannot be loaded as safetensors")
    tensors.unlink()
    refused("cannot read", "model.safetensors")
    tensors.write_bytes(whole)
    for text in ("{", "[]", '{"model_type": "other"}'):
        config.write_text(text)
        refused("config.json")
    config.unlink()
    refused("cannot read", "config.json")
    config.write_text(json.dumps({"model_type": "electra", "hidden_size": 3}))
    refused("config.json is not a configuration")


def test_more_positions_than_memory_holds(trained, tmp_path):
    """The recorded number, in one line."""
    state = torch.load(trained() / "checkpoint_last.pt", weights_only=True)
    state["cfg"]["model"].max_positions = 10**12
    torch.save(state, tmp_path / "model.pt")
    (tmp_path / "dict.txt").write_bytes((trained() / "dict.txt").read_bytes())
    with pytest.raises(UsageError, match=r"max_positions 10+ or an option") as error:
        convert(["--to", "huggingface", str(tmp_path), "--out", str(tmp_path / "out")])
    assert "\n" not in str(error.value)
