"""README.md of a directory for transformers."""

import re
import shutil

import pytest
import torch

from tests.convert.samples import masked_lm, run
from tests.fairseq_commands import finetune
from tupe_fairseq.convert.formats import huggingface
from tupe_fairseq.convert.models import HEAD, LM_HEAD

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
yaml = pytest.importorskip("yaml")


def read_card(folder) -> tuple[dict, dict[str, str], str]:
    """The header, the table and the code of a card."""
    _, header, text = (folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    rows = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", text, flags=re.MULTILINE))
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    return yaml.safe_load(header), rows, code.replace("DIRECTORY", str(folder))


def test_card_tells_what_the_checkpoint_records(trained, toy_masked_lm_data, tmp_path):
    directory = trained("--position-encoding", "rope", "--rope-theta", 500)
    run("--to", "huggingface", directory, tmp_path / "hf")
    header, rows, code = read_card(tmp_path / "hf")
    assert header["pipeline_tag"] == "fill-mask"
    assert "license" not in header, "left to the user"
    state = torch.load(directory / "checkpoint_last.pt", weights_only=False)
    assert rows["position encoding"] == "`rope`"
    assert "rope_theta 500" in rows["its options"]
    assert rows["training"] == "3 updates"
    assert rows["validation"] == f"{state['extra_state']['val_loss']:.3f} bits"
    assert rows["data"].startswith(f"`{'/'.join(toy_masked_lm_data.parts[-2:])}`")
    assert str(toy_masked_lm_data) not in (tmp_path / "hf" / "README.md").read_text()
    assert rows["layers, width, heads"] == "2, 32, 4"
    names: dict = {}
    exec(code, names)
    size = sum(parameter.numel() for parameter in names["model"].parameters())
    assert rows["parameters"] == f"{size:,}"


@pytest.mark.parametrize(
    ("data", "shown"),
    [("/data", "`data`"), ("/home/me/data", "`me/data`"), ("a:b", "`a`"), ("/", "not recorded")],
)
def test_name_of_the_data(trained, tmp_path, data, shown):
    """At most two folders, as they are read in a path."""
    directory = shutil.copytree(trained("--position-encoding", "rope"), tmp_path / "model")
    state = torch.load(directory / "checkpoint_last.pt", weights_only=False)
    state["cfg"]["task"]["data"] = data
    torch.save(state, directory / "model.pt")
    run("--to", "huggingface", directory, tmp_path / "hf")
    told = read_card(tmp_path / "hf")[1]["data"]
    assert told.partition(",")[0] == shown


@pytest.mark.parametrize(
    ("data", "flags"),
    [
        ("single", ("2", "--best-checkpoint-metric", "accuracy")),
        # fairseq divides each loss by ln 2; a squared error is not in bits.
        ("regression", ("1", "--regression-target")),
    ],
)
def test_card_of_a_classifier(toy_sentence_data, tmp_path, data, flags):
    data = toy_sentence_data[data]
    checkpoint = finetune(data, tmp_path / "model", "--num-classes", *flags)
    (checkpoint.with_name("dict.txt")).write_bytes((data / "input0" / "dict.txt").read_bytes())
    run("--to", "huggingface", tmp_path / "model", tmp_path / "hf", "--head", HEAD)
    header, rows, code = read_card(tmp_path / "hf")
    assert header["pipeline_tag"] == "text-classification"
    assert "# A sequence classifier with" in (tmp_path / "hf" / "README.md").read_text()
    assert "AutoModelForSequenceClassification" in code
    value = torch.load(checkpoint, weights_only=False)["extra_state"]["val_loss"]
    name = "accuracy" if "accuracy" in flags else "loss"
    assert rows["validation"] == f"{value:.3f} {name}"


def test_card_of_what_records_nothing(tmp_path):
    """A model that was not read from a file, also as RoBERTa, whose class transformers has."""
    for name in ("alibi", "learned"):
        huggingface.write(masked_lm(name)[1], tmp_path / name)
        _, rows, code = read_card(tmp_path / name)
        known = {rows[key] for key in ("data", "training", "validation")}
        assert known == {"not recorded"}
        assert ("trust_remote_code" in code) == (name == "alibi")


def test_card_of_an_encoder(tmp_path):
    """Nothing says that this package has trained it."""
    converted = masked_lm("rope")[1]
    converted.state = {n: v for n, v in converted.state.items() if not n.startswith(LM_HEAD)}
    huggingface.write(converted, tmp_path / "encoder")
    text = (tmp_path / "encoder" / "README.md").read_text()
    assert "# An encoder with the position encoding `rope`\n\nWritten by tupe_fairseq" in text
