"""Language models in transformers: every encoding of a decoder, there and back, and refusals."""

import json
import os
import subprocess
import sys

import pytest
import torch

from tests.decoder.samples import VARIANTS, every_language_model
from tests.integration.commands import train_lm, train_translation
from tests.interop.pieces import entries_of, train
from tests.interop.test_tupe_classes import ALONE
from tests.tolerances import FORWARD, assert_close
from tupe_fairseq import TupeTransformerLM, UsageError
from tupe_fairseq.interop.check import outputs_of
from tupe_fairseq.interop.convert import convert
from tupe_fairseq.interop.dictionaries import Entry
from tupe_fairseq.interop.directory import load
from tupe_fairseq.interop.families import CAUSAL
from tupe_fairseq.interop.formats import huggingface
from tupe_fairseq.interop.model_files import write_tensors
from tupe_fairseq.interop.models import Converted, build
from tupe_fairseq.interop.tokenizer_json import write_tokenizer

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

ENTRIES = [Entry(f"w{i}", 1) for i in range(40)]


def model(variant: str, **changes):
    """A tiny model with parameters large enough for positions to matter, and its conversion."""
    name, options = VARIANTS[variant]
    settings = {
        **{"decoder_layers": 2, "decoder_embed_dim": 16, "decoder_ffn_embed_dim": 24},
        **{"decoder_attention_heads": 4, "max_target_positions": 24, "position_encoding": name},
        **{"decoder_normalize_before": True, "dropout": 0.1, "attention_dropout": 0.1},
        **{"activation_dropout": 0.0, "activation_fn": "relu", "no_scale_embedding": False},
        **{"share_decoder_input_output_embed": False, "layernorm_embedding": False},
    }
    settings |= {**options, **changes}
    torch.manual_seed(0)
    built = build(settings, ENTRIES, {}, CAUSAL)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    return built.eval(), Converted(settings, built.state_dict(), ENTRIES, family=CAUSAL)


def tokens() -> torch.Tensor:
    ids = torch.randint(4, 44, (2, 20), generator=torch.Generator().manual_seed(0))
    ids[:, 0], ids[1, 9:] = 2, 1
    return ids


def assert_same(back: Converted, converted: Converted) -> None:
    assert back.family is CAUSAL
    assert back.state.keys() == converted.state.keys()
    for key, value in converted.state.items():
        assert torch.equal(back.state[key], value), key


@every_language_model
@torch.no_grad()
def test_there_and_back(variant, tmp_path):
    """Equal outputs there; parameters and settings bit for bit back here."""
    built, converted = model(variant)
    huggingface.write(converted, tmp_path / "hf")
    found = huggingface.outputs(tmp_path / "hf", converted, None)(tokens())
    seen = tokens().ne(1)
    for actual, expected in zip(found, outputs_of(built, None, CAUSAL)(tokens()), strict=True):
        assert_close(actual[seen], expected[seen])
    back = huggingface.read(tmp_path / "hf")
    assert_same(back, converted)
    assert converted.settings.items() <= back.settings.items()


@pytest.mark.parametrize(
    "changes",
    [
        {"share_decoder_input_output_embed": True, "layernorm_embedding": True},
        {"no_scale_embedding": True, "add_bos_token": True, "decoder_normalize_before": False},
    ],
)
@torch.no_grad()
def test_other_settings(changes, tmp_path):
    built, converted = model("tupe_r", **changes)
    huggingface.write(converted, tmp_path / "hf")
    logits = huggingface.outputs(tmp_path / "hf", converted, None)(tokens())[1]
    assert_close(logits[tokens().ne(1)], built(tokens())[0][tokens().ne(1)])
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert config["bos_token_id"] == (0 if "add_bos_token" in changes else 2)
    back = huggingface.read(tmp_path / "hf")
    assert_same(back, converted)
    assert changes.items() <= back.settings.items()


@pytest.mark.slow
@torch.no_grad()
def test_code_of_the_directory_gives_equal_outputs(tmp_path):
    """Of encodings that only decoders have."""
    folder, names = tmp_path / "directories", ("xpos", "cope")
    for name in names:
        built, converted = model(name)
        huggingface.write(converted, folder / name)
        expected = {"ids": tokens(), "logits": built(tokens())[0]}
        write_tensors(folder / name / "expected", expected)
    environment = {**os.environ, "HF_MODULES_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    program = ALONE.replace("AutoModelForMaskedLM", "AutoModelForCausalLM")
    command = [sys.executable, "-W", "ignore", "-c", program, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.keys() == set(names)
    assert max(found.values()) <= FORWARD[torch.float32]


@pytest.fixture(scope="module")
def trained(toy_masked_lm_data, tmp_path_factory):
    """The directory of a language model after a few updates."""
    folder = tmp_path_factory.mktemp("lm")
    train_lm(toy_masked_lm_data, folder, "--position-encoding", "tupe_r")
    (folder / "dict.txt").write_bytes((toy_masked_lm_data / "dict.txt").read_bytes())
    return folder


def test_commands(trained, tmp_path):
    """Both ways with --check; the result has the same parameters, and trains on."""
    hf, back = str(tmp_path / "hf"), str(tmp_path / "back")
    report = convert(["--to", "huggingface", str(trained), "--out", hf, "--check"])
    assert sum("largest difference" in line for line in report) == 2
    report = convert(["--from", "huggingface", hf, "--out", back, "--check"])
    assert sum("largest difference" in line for line in report) == 2
    assert_same(load(back)[0], load(trained)[0])


@torch.no_grad()
def test_generation_is_that_of_fairseq(trained, tmp_path):
    """Greedy, from a prompt, without a cache there and with one here."""
    convert(["--to", "huggingface", str(trained), "--out", str(tmp_path / "hf")])
    auto, hub = transformers.AutoModelForCausalLM, TupeTransformerLM.from_pretrained(trained)
    import tupe_fairseq.huggingface  # noqa: F401 (the model's code is not loaded from there)

    theirs = auto.from_pretrained(tmp_path / "hf").eval()
    prompt = hub.encode("w3 w1 w4")
    expected = hub.generate(prompt[None], beam=1, max_len_b=9)[0][0]["tokens"]
    start = torch.cat((prompt[-1:], prompt[:-1]))[None]
    # fairseq ends a text of the largest length by </s>.
    found = theirs.generate(
        start, do_sample=False, max_new_tokens=len(expected) - 4, suppress_tokens=[1]
    )
    assert found[0, 1:].tolist() == expected[:-1].tolist()


@pytest.mark.parametrize("start", ["</s>", "<s>"])
def test_texts_begin_as_in_training(start, tmp_path):
    """One symbol before the text and none after it, so that `generate` continues it."""
    pieces = train(tmp_path)
    entries = entries_of(pieces)
    assert write_tokenizer(tmp_path, tmp_path, entries, 24, start=start) == ""
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ids = [entries.index(Entry(p, 1)) + 4 for p in pieces.encode("a movie", out_type=str)]
    assert tokenizer("a movie")["input_ids"] == [0 if start == "<s>" else 2, *ids]
    assert tokenizer.mask_token is None
    assert len(tokenizer) == len(entries) + 4
    assert tokenizer.bos_token == start


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (("--to", "onnx"), "a language model, which --to onnx does not take"),
        (("--to", "huggingface", "--classes", "roberta"), "is a language model: use tupe"),
        (("--to", "huggingface", "--head", "topic"), "heads are: none"),
    ],
)
def test_refusals(trained, tmp_path, flags, part):
    out = tmp_path / "out"
    with pytest.raises(UsageError, match=part) as error:
        convert([*flags[:2], str(trained), "--out", str(out), *flags[2:]])
    assert "\n" not in str(error.value)
    assert not out.exists()


def test_other_models_are_refused(toy_translation_data, toy_masked_lm_data, tmp_path):
    """Translation models, and language models with parts that the classes do not have."""
    train_translation(toy_translation_data, tmp_path / "t", "--max-update", 1)
    flags = ("--criterion", "adaptive_loss", "--adaptive-softmax-cutoff", "5,10")
    train_lm(toy_masked_lm_data, tmp_path / "a", *flags, "--max-update", 1)
    for name, part in (("t", "is a translation model"), ("a", "adaptive_softmax")):
        dictionary = (toy_masked_lm_data / "dict.txt").read_bytes()
        (tmp_path / name / "dict.txt").write_bytes(dictionary)
        with pytest.raises(UsageError, match=part) as error:
            convert(["--to", "huggingface", str(tmp_path / name), "--out", str(tmp_path / "o")])
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"embedding_scale": 3}, "invalid embedding_scale in .*: 3; .* multiplies .* by 4.0"),
        ({"num_attention_heads": 5}, "invalid decoder_attention_heads in .*: 5"),
        ({"is_decoder": False}, "has 45 symbols, but the checkpoint has embeddings for 44"),
        ({"tie_word_embeddings": 0, "vocab_size": 3}, None),
    ],
)
def test_invalid_configurations(tmp_path, changes, part):
    """Sizes are taken from the parameters."""
    huggingface.write(model("rope")[1], tmp_path / "hf")
    path = tmp_path / "hf" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    if part is None:
        huggingface.read(tmp_path / "hf")
        return
    with pytest.raises(UsageError, match=part) as error:
        huggingface.read(tmp_path / "hf")
    assert "\n" not in str(error.value)
