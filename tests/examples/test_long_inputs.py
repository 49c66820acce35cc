"""examples/study/long_inputs.py, length_tuning.py and length_terms.py, with a toy TUPE-R."""

import json
import random
import sys
import zipfile

import pytest
import torch

from examples.study import (
    length_report,
    length_terms,
    length_tuning,
    long_inputs,
)
from examples.study.long_inputs_data import SECTIONS, read_articles
from tests.fairseq_commands import pretrain
from tests.glue.samples import write_tokenizer
from tupe_fairseq import UsageError
from tupe_fairseq.position.indices import toeplitz

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "a", "bird"]


#: Flags for models of the size of `trained`.
SMALL = ("--encoder-layers", "1", "--encoder-embed-dim", "32")
SMALL += ("--encoder-ffn-embed-dim", "64", "--encoder-attention-heads", "4")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Four articles of 60 words in each section, and one of them twice."""
    path, rng = tmp_path_factory.mktemp("wheel") / "articles.whl", random.Random(0)
    with zipfile.ZipFile(path, "w") as archive:
        for section in SECTIONS:
            for number in range(4):
                text = " ".join(rng.choices(WORDS, k=60))
                archive.writestr(f"corpus/data/{section}/{number}.txt", f"Title\n\n{text}\n")
        archive.writestr(f"corpus/data/{section}/again.txt", f"Title  {text}")
        archive.writestr("corpus/data/readme.txt", "no article")
        archive.writestr("corpus/data/tech/code.py", "no article")
    return path


@pytest.fixture(scope="module")
def trained(toy_masked_lm_data, tmp_path_factory):
    """A TUPE-R of 16 tokens, with its dictionary and a tokenizer of the toy words beside it."""
    from examples.glue.tokenizer import Tokenizer
    from tests import toy_data

    folder = write_tokenizer(tmp_path_factory.mktemp("model"), " ".join(WORDS))
    tokenizer, data = Tokenizer(folder), tmp_path_factory.mktemp("text")
    lines = [tokenizer.bpe.encode(" ".join(WORDS[i % 5 :])) for i in range(80)]
    for split in ("train", "valid"):
        toy_data.write_split(data, split, lines, tokenizer.dictionary)
    flags = ("--position-encoding", "tupe_r", "--tokens-per-sample", 16, "--max-update", 2)
    flags += ("--encoder-layers", 1, "--sample-break-mode", "none")
    return pretrain(data, folder, *flags), data


def test_an_article_is_read_once_with_its_section(wheel):
    sections = read_articles(wheel)
    assert sorted(sections.values()) == sorted(SECTIONS * 4)
    assert all(text.startswith("Title ") for text in sections)


def test_a_file_without_articles(tmp_path):
    (tmp_path / "no.whl").write_text("text")
    with pytest.raises(UsageError, match="is no wheel"):
        read_articles(tmp_path / "no.whl")
    zipfile.ZipFile(tmp_path / "empty.whl", "w").close()
    with pytest.raises(UsageError, match="has no folders business, "):
        read_articles(tmp_path / "empty.whl")
    with pytest.raises(UsageError, match="there is no file"):
        long_inputs.main([str(tmp_path / "x"), "--models", "a=b", "--out", str(tmp_path / "out")])


@pytest.mark.slow
def test_every_way(wheel, trained, tmp_path, monkeypatch, forking_python):
    monkeypatch.setattr(sys, "executable", forking_python)
    checkpoint, _ = trained
    out = tmp_path / "out"
    short = ("--seeds", "1", "--trained", "16", "--longest", "40", "--updates", "2")
    words = [str(wheel), "--models", f"a={checkpoint}", "--out", str(out), *short, "--", *SMALL]
    long_inputs.main(words)
    runs = json.loads((out / "results.json").read_text())["runs"]
    assert list(runs) == ["data", *(f"{way}/a/1" for way in long_inputs.WAYS)]
    data = runs["data"]["result"]
    assert data["splits"] == {"train": 16, "valid": 4}
    assert data["longer"] == {"16": 100, "40": 100}
    for way in long_inputs.WAYS:
        assert 0 <= runs[f"{way}/a/1"]["result"]["accuracy"] <= 100
        assert runs[f"{way}/a/1"]["settings"]["tokens"] == (16 if way == "truncated" else 40)
    report = (out / "report.md").read_text()
    assert "16 to train, 4 held out" in report
    assert "| `toeplitz` | 40 | 1 | " in report
    assert "Planned and not run: nothing." in report


@pytest.mark.slow
def test_training_on_at_a_longer_length(trained, tmp_path, monkeypatch, forking_python):
    """Updates at a rate of 1e-9 change nothing: the losses are those of the starts."""
    monkeypatch.setattr(sys, "executable", forking_python)
    checkpoint, data = trained
    out = tmp_path / "out"
    words = [data, "--models", f"a={checkpoint}", "--out", out, "--trained", 16, "--longest", 64]
    words += ["--updates", 10, "--lr", 1e-9, "--", *SMALL]
    length_tuning.main(list(map(str, words)))
    runs = json.loads((out / "results.json").read_text())["runs"]
    assert list(runs) == [f"{way}/a" for way in length_tuning.WAYS]
    losses = [set(run["result"]["losses"].values()) for run in runs.values()]
    assert all(len(each) == 1 for each in losses)
    assert losses[0].isdisjoint(losses[2])
    assert (
        "--extend-positions toeplitz --trained-positions 16 " in runs["toeplitz/a"]["commands"][0]
    )
    report = (out / "report.md").read_text()
    assert "Planned and not run: nothing." in report
    assert "| way | models | 1 updates | 2 updates | 3 updates | 5 updates | 10 upd" in report
    assert all(f"| {way} | 1 | " in report for way in length_tuning.WAYS)


def test_explained_by_distance():
    """1 for a Toeplitz matrix; for the mean of one and noise of equal variance, about a half."""
    generator = torch.Generator().manual_seed(0)
    same = toeplitz(torch.randn(2, 399, generator=generator), 200)
    noise = torch.randn(2, 200, 200, generator=generator)
    assert length_terms.explained(same) == pytest.approx([1, 1])
    assert length_terms.explained(same + noise) == pytest.approx([0.5, 0.5], abs=0.1)


@pytest.mark.slow
def test_terms_and_their_table(trained, tmp_path, monkeypatch):
    """A second call measures nothing."""
    checkpoint, data = trained
    words = ["length_terms", data, 16, 1, tmp_path, f"toy={checkpoint}"]
    monkeypatch.setattr(sys, "argv", [*map(str, words)])
    length_terms.main()
    found = json.loads((tmp_path / "terms.json").read_text())
    model = found["models"]["toy"]
    assert list(model["ways"]) == list(length_terms.ways(16))
    assert len(model["explained"]) == 4
    assert model["ways"]["default"]["mean"]["1"] == model["ways"]["slope 0"]["mean"]["1"]
    assert model["ways"]["default"]["mean"]["16"] != model["ways"]["slope 0"]["mean"]["16"]
    table = length_report.terms_part(found)
    assert sum(line.startswith("| toy | ") for line in table) == 1 + len(model["ways"])
    monkeypatch.setattr(length_terms, "measured", None)
    length_terms.main()
