"""Directories for transformers with their own code: every encoding, there and back."""

import json
import os
import subprocess
import sys

import pytest
import safetensors.torch
import torch

from tests.convert import samples
from tests.convert.samples import masked_lm
from tests.huggingface import samples as there
from tests.tolerances import FORWARD, assert_close
from tupe_fairseq import UsageError
from tupe_fairseq.convert import sources
from tupe_fairseq.convert.directory import outputs_of
from tupe_fairseq.convert.formats import huggingface
from tupe_fairseq.convert.models import HEAD
from tupe_fairseq.convert.sources import AUTO_MAP
from tupe_fairseq.position import POSITION_ENCODINGS, PositionEncoding, register_position_encoding

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

ENCODERS = [name for name, cls in POSITION_ENCODINGS.items() if not cls.causal_only]


@torch.no_grad()
def write(model, folder):
    """Write a directory with ids and the logits of fairseq's model; returns the conversion."""
    built, converted = model
    huggingface.write(converted, folder, classes="tupe")
    expected = {"ids": samples.ids(), "logits": built(samples.ids())[0]}
    safetensors.torch.save_file(expected, folder / "expected")
    return converted


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    """The folder of directories of every encoding, and what they were written from by name."""
    folder = tmp_path_factory.mktemp("hf")
    return folder, {name: write(masked_lm(name), folder / name) for name in ENCODERS}


#: Begins programs that load directories without this package and without fairseq.
ALONE = """
import json, sys
for name in ("tupe_fairseq", "fairseq"):
    sys.modules[name] = None
import torch, transformers
from pathlib import Path
from safetensors.torch import load_file
def load(name, folder):
    model = getattr(transformers, name).from_pretrained(folder, trust_remote_code=True).eval()
    assert type(model).__module__.startswith("transformers_modules.")
    return model
def code(folder):
    return {path.name: path.read_bytes() for path in Path(folder).glob("*.py")}
"""
#: Compares the outputs of all directories of a folder, and saves and loads them again, by the
#: same class: CLASSES loads what is saved by its own code.
OUTPUTS = """
errors = {}
for folder in sorted(Path(sys.argv[1]).iterdir()):
    expected = load_file(folder / "expected")
    model, again = load(sys.argv[2], folder), Path("again", f"{folder.name}_again")
    model.save_pretrained(again)
    assert code(folder) == code(again)
    seen = expected["ids"].ne(1)
    with torch.no_grad():
        logits = model(expected["ids"]).logits
        reloaded = type(model).from_pretrained(again).eval()
        assert torch.equal(reloaded(expected["ids"]).logits, logits), folder
    error = (logits - expected["logits"])[seen].abs().max().item()
    errors[folder.name] = error / expected["logits"].abs().max().item()
print(json.dumps(errors))
"""
#: Loads one of them by each class, saves it, and loads that by the same class and as the base.
CLASSES = """
ids = torch.tensor([[0, 5, 6, 7, 2]])
folder = Path(sys.argv[1], "rope")
for name in sys.argv[3:]:
    inputs = ids[None] if name.endswith("MultipleChoice") else ids
    model = load(name, folder)
    model.save_pretrained(name)
    assert code(name) == code(folder)
    load("AutoModel", name)
    with torch.no_grad():
        torch.testing.assert_close(load(name, name)(inputs)[0], model(inputs)[0])
"""


def alone(program: str, cache, *words) -> str:
    """Run a program in a folder of its own; returns what it prints."""
    environment = {**os.environ, "HF_MODULES_CACHE": str(cache), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-W", "ignore", "-c", ALONE + program, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=cache)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_code_of_the_directory_gives_equal_outputs(directories, tmp_path):
    """And every class is saved with its code. One program, which takes seconds to start."""
    names = [name for name in AUTO_MAP if "Config" not in name]
    words = (directories[0], "AutoModelForMaskedLM", *names)
    errors = json.loads(alone(OUTPUTS + CLASSES, tmp_path, *words))
    assert errors.keys() == set(ENCODERS)
    assert not {name: error for name, error in errors.items() if error > FORWARD[torch.float32]}


@pytest.mark.parametrize("name", ENCODERS)
def test_there_and_back(directories, name):
    """Parameters and settings, bit for bit."""
    folder = directories[0] / name
    converted = directories[1][name]
    back = huggingface.read(folder)
    samples.assert_same_state(back, converted.state)
    assert_settings_stay(back, converted)


def assert_settings_stay(back, converted):
    """A model of transformers also has defaults."""
    flat, expected = (
        {**each.settings, **each.settings["position_options"], "position_options": None}
        for each in (back, converted)
    )
    assert flat | expected == flat


def assert_there_and_back(model, folder):
    """Equal outputs there; parameters and settings bit for bit back here."""
    built, converted = model
    huggingface.write(converted, folder)
    found = huggingface.open_directory(folder, converted, None).outputs(samples.ids())
    seen = samples.ids().ne(1)
    assert_close(found[seen], outputs_of(built, None)(samples.ids())[seen])
    back = huggingface.read(folder)
    samples.assert_same_state(back, converted.state)
    assert_settings_stay(back, converted)


@torch.no_grad()
def assert_back_from_transformers(model, folder):
    """A model with the defaults of transformers' classes computes the same here."""
    model.save_pretrained(folder)
    samples.WORDS.save(str(folder / "dict.txt"))
    back = huggingface.read(folder)
    seen = samples.ids().ne(1)
    here = outputs_of(samples.rebuilt(back), None)
    assert_close(model(samples.ids()).logits[seen], here(samples.ids())[seen])


@pytest.mark.parametrize("name", ENCODERS)
def test_new_models_of_transformers(name, tmp_path):
    assert_back_from_transformers(there.masked_lm(name, vocab_size=45), tmp_path)


@torch.no_grad()
def test_windows(tmp_path):
    window = {"attention_window": 2, "global_every": 2}
    assert_there_and_back(masked_lm("rope", **window), tmp_path / "hf")


def test_encodings_of_other_packages_are_refused(monkeypatch):
    monkeypatch.setattr(POSITION_ENCODINGS, "_entries", dict(POSITION_ENCODINGS.items()))
    register_position_encoding("own")(type("Own", (PositionEncoding,), {"__module__": "mine"}))
    with pytest.raises(UsageError, match="'own' of mine, whose code cannot be written"):
        sources.collect("own")


@pytest.mark.parametrize(
    ("labels", "problem"), [(1, "regression"), (3, "single_label_classification")]
)
@torch.no_grad()
def test_classifiers_there_and_back(labels, problem, tmp_path):
    """One label is a regression, as STS-B, with the squared error as its loss."""
    built, converted = masked_lm("tupe_r", labels)
    huggingface.write(converted, tmp_path / "hf", head=HEAD)
    opened = huggingface.open_directory(tmp_path / "hf", converted, HEAD)
    actual = opened.outputs(samples.ids())
    expected = outputs_of(built, HEAD)(samples.ids())
    assert expected.shape == (2, labels)
    assert_close(actual, expected)
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert config["problem_type"] == problem
    assert len(config["id2label"]) == labels
    back = huggingface.read(tmp_path / "hf")
    assert back.head == HEAD
    body = {n: value for n, value in converted.state.items() if not n.startswith("lm_head.")}
    samples.assert_same_state(back, body)
    with pytest.raises(UsageError, match=r"unknown --head 'topic'; .* sentence_classification_he"):
        huggingface.write(converted, tmp_path / "no", head="topic")


def test_saved_by_transformers_in_several_files(tmp_path):
    """After training there: other values, `save_pretrained`, no dict.txt."""
    from tupe_fairseq.huggingface import TupeForMaskedLM

    _, converted = masked_lm("rope", untie_weights_roberta=True)
    huggingface.write(converted, tmp_path / "hf")
    trained = TupeForMaskedLM.from_pretrained(tmp_path / "hf")
    with torch.no_grad():
        trained.tupe.embed_tokens.weight.mul_(2)
    trained.save_pretrained(tmp_path / "again", max_shard_size="10KB")
    index = tmp_path / "again" / "model.safetensors.index.json"
    assert index.is_file()
    back = huggingface.read(tmp_path / "again", tmp_path / "hf" / "dict.txt")
    words = "tupe.embed_tokens.weight"
    assert torch.equal(back.state[words], 2 * converted.state[words])
    assert not back.settings["tie_word_embeddings"]


def test_saved_with_the_installed_package(tmp_path):
    """The directory gets no code, so it must not name any."""
    import tupe_fairseq.huggingface  # noqa: F401

    huggingface.write(masked_lm("rope")[1], tmp_path / "hf")
    model = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "hf")
    model.save_pretrained(tmp_path / "again")
    assert "auto_map" in json.loads((tmp_path / "hf" / "config.json").read_text())
    assert "auto_map" not in json.loads((tmp_path / "again" / "config.json").read_text())


@pytest.mark.parametrize("changes", [{"normalize_before": True}, {"norm": "rms"}])
def test_learned_positions_in_layers_that_bert_does_not_have(changes, tmp_path):
    """By default, they are written by the class of this package."""
    there.masked_lm("learned", vocab_size=45, **changes).save_pretrained(tmp_path / "hf")
    samples.WORDS.save(str(tmp_path / "hf" / "dict.txt"))
    samples.run("--from", "huggingface", tmp_path / "hf", tmp_path / "here")
    samples.run("--to", "huggingface", tmp_path / "here", tmp_path / "back", "--check")
    assert json.loads((tmp_path / "back" / "config.json").read_text())["model_type"] == "tupe"


def test_check_of_half_precision(tmp_path):
    """The converter compares in fp32."""
    torch.manual_seed(0)
    there.masked_lm("learned", vocab_size=45).bfloat16().save_pretrained(tmp_path / "hf")
    samples.WORDS.save(str(tmp_path / "hf" / "dict.txt"))
    lines = samples.run("--from", "huggingface", tmp_path / "hf", tmp_path / "back", "--check")
    assert any("largest difference" in line for line in lines)


def test_tables_by_token_in_the_order_of_a_tokenizer(tmp_path):
    """Frequencies and phases of `complex_order` go with their tokens to fairseq and back."""
    samples.bert(tmp_path / "hf")
    words = {"vocab_size": 60, "pad_token_id": 0, "bos_token_id": 4, "eos_token_id": 5}
    model = there.masked_lm("complex_order", **words)
    model.save_pretrained(tmp_path / "hf")
    samples.run("--from", "huggingface", tmp_path / "hf", tmp_path / "here", "--check")
    samples.run("--to", "huggingface", tmp_path / "here", tmp_path / "back", "--check")
    back = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "back")
    for name, value in model.state_dict().items():
        assert torch.equal(back.state_dict()[name], value), name
