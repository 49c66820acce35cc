"""Every file that we write, on a full disk and in a read-only folder: the old one stays whole."""

import argparse
from pathlib import Path

import pytest
import torch

from examples.glue import predict
from examples.glue.glue_submission import FILES
from examples.pretraining import clean, encode, vocabularies
from examples.shared import runner
from examples.shared.results import write_report
from scripts.drawing.plots import draw_positional_correlations, save_png
from tests.convert import release
from tests.stress.disks import digests, full_disk, read_only
from tupe_fairseq import TUPEConfig, TUPEEncoder, UsageError
from tupe_fairseq.convert.command import convert
from tupe_fairseq.transformer.analysis import positional_correlations

TEXT = "".join(f"the cat {i} sat on a mat\n\n" for i in range(200))


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> Path:
    """What the writers read."""
    folder = tmp_path_factory.mktemp("sources")
    release.write(folder / "release")
    (folder / "text.txt").write_text(TEXT)
    (folder / "text").mkdir()
    for split in ("train", "valid"):
        (folder / "text" / f"{split}.txt").write_text(TEXT.replace("\n\n", "\n"))
    torch.save({"model": {}}, folder / "model.pt")
    return folder


def converted(sources, out):
    checkpoint = str(sources / "release" / "checkpoint.pt")
    convert(["--from", "tupe-official", checkpoint, "--out", str(out / "model")])


def figure(sources, out):
    maps = positional_correlations(TUPEEncoder(TUPEConfig(num_layers=1)), 8)
    save_png(draw_positional_correlations(maps, "title", "command"), out / "figure.png")


def cleaned(sources, out):
    # In this process, since a pool of processes needs small files itself.
    clean.clean_file(sources / "text.txt", out / "part", clean.Settings(False, 2000, 0.1))


def encoded(sources, out):
    encode.make_vocabulary("40", sources / "text" / "train.txt", out / encode.MODEL, workers=1)
    vocabulary = vocabularies.load_sentencepiece(out / encode.MODEL)
    vocabularies.write_dictionary(vocabulary, out / "dict.txt")


def results_of_runs(sources, out):
    args = runner.arguments(argparse.ArgumentParser(), ["--out", str(out)], "plan")
    with runner.runner(args, {}, lambda out: None) as execute:
        execute([])


def report_of_runs(sources, out):
    write_report(out, {"command": "python", "runs": {}}, ["# Runs"])


def submission(sources, out):
    words = ["--data", str(sources), "--out", str(out / "s.zip"), str(sources)]
    predict.main(predict.arguments(words))


WRITERS = [converted, figure, cleaned, encoded, results_of_runs, report_of_runs, submission]


def refused(call) -> str:
    with pytest.raises((UsageError, OSError)) as error:
        call()
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.fixture
def writer(request, monkeypatch):
    """A submission is written without a model."""
    name, (task, split) = next(iter(FILES.items()))
    monkeypatch.setattr(predict, "models_by_task", lambda folders: {task.name: folders[0]})
    rows = ["index\tprediction", *(f"{i}\t{task.labels[0]}" for i in range(split.count))]
    monkeypatch.setattr(predict, "files_of", lambda *_: {name: "\n".join([*rows, ""])})
    return request.param


each_writer = pytest.mark.parametrize("writer", WRITERS, ids=lambda f: f.__name__, indirect=True)


@each_writer
def test_read_only_folder(writer, sources, tmp_path):
    (tmp_path / "old.txt").write_text("old")
    before = digests(tmp_path)
    with read_only(tmp_path):
        told = refused(lambda: writer(sources, tmp_path))
    assert str(tmp_path) in told
    assert "Permission denied" in told
    assert digests(tmp_path) == before


@each_writer
def test_full_disk(writer, sources, tmp_path):
    """The first time nothing is left; the second time what was there."""
    with full_disk(3):
        told = refused(lambda: writer(sources, tmp_path))
    assert str(tmp_path) in told
    assert "File too large" in told
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size > 3]
    if writer is converted:
        assert not digests(tmp_path)
        return
    writer(sources, tmp_path)
    before = digests(tmp_path)
    with full_disk(3):
        refused(lambda: writer(sources, tmp_path))
    assert before.items() <= digests(tmp_path).items()
