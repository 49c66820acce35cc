"""--check: what is right passes, however it was trained, and what differs is noticed."""

import os
import re
import shutil
import signal
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed")

import safetensors.torch
import transformers

from tests import ROOT, processes, toy_data
from tests.convert import samples, test_modernbert
from tests.convert.samples import run, writes_onnx
from tests.fairseq_commands import finetune
from tupe_fairseq import TupeRobertaModel, UsageError
from tupe_fairseq.convert.check import DifferenceError, check
from tupe_fairseq.convert.directory import load
from tupe_fairseq.convert.formats import huggingface
from tupe_fairseq.convert.models import HEAD, head_names
from tupe_fairseq.convert.opened import open_directory

CLASSIFIER = "ForSequenceClassification"
FLAGS = ("--classes", "tupe", "--check")
OF_HEAD = "logits of the head"
LINES = ["the cat sat on the mat", "a dog ran over the hill", "it's a dog", "cats run"] * 8
#: Whether a second </s> separates two sentences, token types, whether there are two sentences.
TRAINED = {
    "one sentence": (False, 0, False),
    "one sentence, separated": (True, 0, False),
    "pairs": (False, 0, True),
    "pairs, separated": (True, 0, True),
    "types": (False, 2, True),
    "types, separated": (True, 2, True),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Folders of labelled sentences and of pairs, with a tokenizer."""
    folder = tmp_path_factory.mktemp("data")
    for kind in ("single", "pairs"):
        (folder / kind).mkdir()
        lines, symbols = toy_data.write_pieces(folder / kind, LINES)
        labels = toy_data.dictionary(["no", "yes", "maybe"])
        for split in ("train", "valid"):
            sides = ("input0", "input1") if kind == "pairs" else ("input0",)
            for number, side in enumerate(sides):
                toy_data.write_split(
                    folder / kind / side, split, lines[number:] + lines[:number], symbols
                )
            toy_data.write_split(
                folder / kind / "label", split, ["no", "yes", "maybe", "no"] * 8, labels
            )
    return folder


@pytest.fixture(scope="module")
def classifier(data):
    """Trains a classifier in a folder with its data; each once."""
    made = {}

    def train(name):
        if name not in made:
            separator, types, pairs = TRAINED[name]
            made[name] = data / ("pairs" if pairs else "single")
            flags = ("--num-classes", 3, "--max-update", 1)
            flags += ("--type-vocab-size", types) if types else ()
            trained = finetune(made[name], data / name, *flags, separator=separator)
            trained.rename(made[name] / f"{name}.pt")
            made[name] /= f"{name}.pt"
        return made[name]

    return train


def passes(lines: list[str], what: str = "logits") -> None:
    """The report of a comparison of texts and outputs."""
    assert any(re.fullmatch(r"ids of \d+ texts: equal", line) for line in lines), lines
    assert lines[-1].startswith(f"{what}: largest difference"), lines


@pytest.mark.parametrize("name", TRAINED)
def test_classifiers(name, classifier, tmp_path):
    """Pairs have the ids of the training at every end, and again in fairseq."""
    source = classifier(name)
    there = tmp_path / "there"
    back = tmp_path / "back"
    passes(run("--to", "huggingface", source, there, "--head", HEAD, "--check"), OF_HEAD)
    passes(run("--from", "huggingface", there, back, "--check"), OF_HEAD)
    hubs = [TupeRobertaModel.from_pretrained(source.parent, source.name)]
    hubs += [TupeRobertaModel.from_pretrained(back)]
    found, expected = (hub.encode("a cat", "a dog").tolist() for hub in hubs)
    assert found == expected
    assert expected.count(2) == 2 + TRAINED[name][0]


def test_other_names_than_classes(classifier, tmp_path):
    """label/dict.txt of another task names no class, and is not compared."""
    source = classifier("pairs")
    folder = shutil.copytree(source.parent, tmp_path / "source")
    (folder / "label/dict.txt").write_text("no 9\nyes 5\nmaybe 3\nperhaps 3\n")
    words = (folder / source.name, tmp_path / "out", "--head", HEAD, "--check")
    lines = run("--to", "huggingface", *words)
    passes(lines, OF_HEAD)
    assert any("no names of the 3 classes" in line for line in lines)


#: What can happen beside a difference.
ENDINGS = {
    "library": UsageError("this needs onnxruntime, which is not installed"),
    "memory": RuntimeError("not enough memory:\nyou tried to allocate 9 bytes"),
    "bare": MemoryError(),
    "stopped": KeyboardInterrupt(),
}


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("name", ENDINGS)
def test_what_cannot_be_compared_stays(name, side, tmp_path, monkeypatch):
    """Whatever ends the comparison before a difference is found: one line says where it is."""
    source = samples.bert(tmp_path / "source")
    out = tmp_path / "out"
    loads = transformers.BertForMaskedLM.from_pretrained.__func__

    def ends(cls, folder, **how):
        if Path(folder) == (source, out)[side]:
            raise ENDINGS[name]
        return loads(cls, folder, **how)

    monkeypatch.setattr(transformers.BertForMaskedLM, "from_pretrained", classmethod(ends))
    flags = ("--to", "huggingface", "--check")
    expected = KeyboardInterrupt if name == "stopped" else UsageError
    with pytest.raises(expected) as ended:
        run("--from", "huggingface", source, out, *flags)
    (line,) = str(ended.value).splitlines()
    assert line.startswith(f"{out} is written, but ")
    monkeypatch.undo()
    assert loaded_logits(out).equal(loaded_logits(source))


def loaded_logits(folder: Path) -> torch.Tensor:
    model = transformers.BertForMaskedLM.from_pretrained(folder).eval()
    return model(torch.arange(20)[None]).logits


@pytest.mark.slow
def test_a_stopped_command_ends_in_one_line(tmp_path):
    """Ctrl-C while the models are compared."""
    source = samples.bert(tmp_path / "source")
    out = tmp_path / "out"
    words = ("--from", "huggingface", source, "--to", "huggingface", "--out", out, "--check")
    program = processes.Program(ROOT / "scripts/convert_checkpoint.py", *words)
    program.until(out.exists)
    os.kill(program.pid, signal.SIGINT)
    ended = program.wait()
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    # Progress bars come before.
    assert ended.stderr.splitlines()[-1].startswith("stopped")
    assert loaded_logits(out).equal(loaded_logits(source))


@writes_onnx
def test_a_program_of_a_classifier(classifier, tmp_path):
    passes(
        run(
            "--to", "onnx", classifier("one sentence"), tmp_path / "out", "--head", HEAD, "--check"
        ),
        OF_HEAD,
    )


@pytest.mark.parametrize(("kind", "separator"), [("bert", None), ("roberta", 2)])
def test_classifiers_with_a_tokenizer_of_transformers(kind, separator, tmp_path):
    """Trained in fairseq, whatever the tokenizer itself puts between two texts."""
    here, there, back = (tmp_path / name for name in ("here", "there", "back"))
    source = getattr(samples, kind)(tmp_path / "source", CLASSIFIER)
    run("--from", "huggingface", source, here)
    state = torch.load(here / "model.pt", weights_only=True)
    state["cfg"]["task"] |= {"_name": "sentence_prediction", "separator_token": separator}
    torch.save(state, here / "model.pt")
    passes(run("--to", "huggingface", here, there, "--head", HEAD, "--check"), OF_HEAD)
    passes(run("--from", "huggingface", there, back, "--check"), OF_HEAD)
    hubs = [TupeRobertaModel.from_pretrained(folder) for folder in (here, back)]
    found, expected = (hub.encode("a cat", "a bird").tolist() for hub in hubs)
    assert found == expected
    assert expected.count(2) == 2 + bool(separator)


@pytest.mark.parametrize("tokenizer", [True, False])
def test_a_change_of_any_parameter_is_noticed(tokenizer, tmp_path):
    """That of the second token type, which only some tokens read, too."""
    source = tmp_path / "source"
    out = tmp_path / "out"
    samples.bert(source, CLASSIFIER, num_hidden_layers=1)
    for path in () if tokenizer else source.glob("tokenizer*"):
        path.unlink()
    flags = ("--to", "huggingface", "--classes", "tupe", "--check")
    run("--from", "huggingface", source, out, *flags)
    converted = huggingface.read(source)
    before = open_directory(source, converted, HEAD)
    whole = safetensors.torch.load_file(out / "model.safetensors")
    for name, value in whole.items():
        changed = value + 0.1 * value.abs().max() * torch.randn(value.shape)
        if "embed_token_types" in name:
            changed[0] = value[0]
        if name.endswith("k_proj.bias"):
            # It adds the same to all scores of a query.
            continue
        safetensors.torch.save_file(whole | {name: changed}, out / "model.safetensors")
        after = open_directory(out, converted, HEAD)
        with pytest.raises(DifferenceError, match="logits of the head"):
            check((before, after), converted, HEAD, False)


@pytest.mark.parametrize("kind", ["bert", "roberta", "modernbert"])
def test_rounding_is_no_difference(kind, tmp_path, monkeypatch):
    """A model may amplify it above the usual tolerance, for which none at all stands here."""
    monkeypatch.setattr("tupe_fairseq.convert.check.TOLERANCE", 0.0)
    save = {"modernbert": test_modernbert.save}.get(kind) or getattr(samples, kind)
    source = save(tmp_path / "source", "ForMaskedLM")
    here = tmp_path / "here"
    run("--from", "huggingface", source, here, "--check")
    for classes in (kind, "tupe"):
        words = (here, tmp_path / classes, "--classes", classes, "--check")
        run("--to", "huggingface", *words)
    lines = run("--from", "huggingface", source, tmp_path / "out", "--to", "huggingface", *FLAGS)
    assert "of the largest, as in the source by rounding (" in lines[-1]


#: Heads of transformers, and how many classes they have.
HEADS = [("Model", 0), ("ForMaskedLM", 0), (CLASSIFIER, 1), (CLASSIFIER, 3)]
HEADS += [("ForTokenClassification", 1), ("ForTokenClassification", 3)]
HEADS += [("ForQuestionAnswering", 2), ("ForMultipleChoice", 2)]


#: The other families differ in the head for masked tokens and in those over the first token.
OF_OTHERS = [("ForMaskedLM", 0), (CLASSIFIER, 3), ("ForTokenClassification", 1)]


@pytest.mark.parametrize(
    ("family", "kind", "classes"),
    [("bert", *head) for head in HEADS]
    + [(family, *head) for family in ("roberta", "modernbert") for head in OF_OTHERS],
)
def test_every_head_of_a_family(family, kind, classes, tmp_path):
    """To fairseq, and from there with each of its heads to our class."""
    save = {"modernbert": test_modernbert.save}.get(family) or getattr(samples, family)
    changes = {"num_labels": classes} if classes else {}
    source = save(tmp_path / "source", kind, **changes)
    here = tmp_path / "here"
    assert "largest difference" in run("--from", "huggingface", source, here, "--check")[-1]
    words = (source, tmp_path / "ours", "--to", "huggingface", *FLAGS)
    assert "largest difference" in run("--from", "huggingface", *words)[-1]
    for head in head_names(load(here).state):
        out = tmp_path / head
        lines = run("--to", "huggingface", here, out, "--head", head, *FLAGS)
        assert lines[-1].startswith(OF_HEAD)
