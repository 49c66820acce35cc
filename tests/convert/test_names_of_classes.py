"""Names of classes are kept in every direction, by number and in every character."""

import json
import shutil

import pytest

pytest.importorskip("transformers", reason="transformers is not installed")

from tests.convert.samples import bert, run
from tests.fairseq_commands import finetune
from tupe_fairseq.convert.directory import load
from tupe_fairseq.convert.models import HEAD

CLASSIFIER = "ForSequenceClassification"
NAMES = ["not it", "it", "Ähnlich"]


def config(folder) -> dict:
    return json.loads((folder / "config.json").read_text())


@pytest.fixture
def finetuned(toy_sentence_data, tmp_path):
    """A fine-tuned model with its data's dictionaries, whose label "1" is class 0."""
    data = toy_sentence_data["single"]
    flags = ("--num-classes", 2, "--position-encoding", "rope", "--no-save-optimizer-state")
    folder = finetune(data, tmp_path / "model", *flags).parent
    for name in ("input0", "label"):
        (folder / name).mkdir()
        shutil.copy(data / name / "dict.txt", folder / name)
    (folder / "label/dict.txt").write_text("1 9\n0 5\nmadeupword0000 0\n")
    return folder


@pytest.mark.slow
def test_names_of_classes_from_fairseq(finetuned, tmp_path, monkeypatch, capsys):
    """In transformers, and back in fairseq."""
    head = ("--head", HEAD)
    there = tmp_path / "there"
    back = tmp_path / "back"
    lines = run("--to", "huggingface", finetuned, there, *head, "--check")
    assert "names of classes: 1, 0" in lines
    assert config(there)["id2label"] == {"0": "1", "1": "0"}
    assert config(there)["label2id"] == {"1": 0, "0": 1}
    assert "names of classes: 1, 0" in run("--from", "huggingface", there, back, "--check")
    assert load(back).labels == ["1", "0"]


def test_unknown_names_of_classes(finetuned, tmp_path):
    """A dictionary of other classes names none."""
    for text in (None, "1 9\n0 5\n2 3\n"):
        path = finetuned / "label/dict.txt"
        path.unlink() if text is None else path.write_text(text)
        out = tmp_path / str(text is None)
        lines = run("--to", "huggingface", finetuned, out, "--head", HEAD)
        assert any("no names of the 2 classes, so they are LABEL_0" in line for line in lines)


@pytest.mark.parametrize("task", [CLASSIFIER, "ForTokenClassification"])
def test_names_of_classes_from_transformers(task, tmp_path):
    """And the kind of problem."""
    problem = {"problem_type": "multi_label_classification"} if task == CLASSIFIER else {}
    source, here, back = (tmp_path / name for name in ("source", "here", "back"))
    bert(source, task, id2label=dict(enumerate(NAMES)), **problem)
    lines = run("--from", "huggingface", source, here, "--check")
    assert f"names of classes: {', '.join(NAMES)}" in lines
    assert load(here).labels == NAMES
    head = HEAD if task == CLASSIFIER else "token_classification_head"
    run("--to", "huggingface", here, back, "--head", head, "--classes", "tupe", "--check")
    assert config(back)["id2label"] == {str(i): name for i, name in enumerate(NAMES)}
    assert problem.items() <= config(back).items()


#: Names that differ in spaces alone, or that no line of a dictionary holds.
ODD_NAMES = [
    ["a  b", "a b", " a b"],
    ["a ", "a", "\ta"],
    ["two\nlines", "two lines", "two\r\nlines"],
    ["", " ", "\u2028"],
    ["<s>", "</s>", "#fairseq:overwrite"],
    ["same", "same", "other 3"],
]


@pytest.mark.parametrize("names", ODD_NAMES, ids=map(ascii, ODD_NAMES))
def test_names_of_classes_keep_every_character(names, tmp_path):
    source, here, back = (tmp_path / name for name in ("source", "here", "back"))
    bert(source, CLASSIFIER, id2label=dict(enumerate(names)))
    run("--from", "huggingface", source, here, "--check")
    assert load(here).labels == names
    run("--to", "huggingface", here, back, "--head", HEAD, "--check")
    assert config(back)["id2label"] == {str(i): name for i, name in enumerate(names)}


def test_names_that_are_changed_by_hand(tmp_path):
    """In label/dict.txt, which then says what they are."""
    source = tmp_path / "source"
    here = tmp_path / "here"
    bert(source, CLASSIFIER, id2label=dict(enumerate(["two\nlines", "b", "c"])))
    run("--from", "huggingface", source, here)
    (here / "label/dict.txt").write_text("x 1\ny 1\nz 1\n")
    assert load(here).labels == ["x", "y", "z"]


def test_names_of_twelve_classes(tmp_path):
    """In the order of their numbers, of which 10 is not after 1."""
    names = [f"kind {number}" for number in range(12)]
    source, here, back = (tmp_path / name for name in ("source", "here", "back"))
    bert(source, CLASSIFIER, id2label=dict(enumerate(names)))
    line = f"names of classes: {', '.join(names)}"
    assert line in run("--from", "huggingface", source, here, "--check")
    assert line in run("--to", "huggingface", here, back, "--head", HEAD, "--check")
