"""examples/transplant/long_texts.py: a sentence in a long text."""

import json
import random
import tarfile

import pytest
import torch

from examples.transplant import articles, long_texts
from tests.examples.test_serving import WORDS, write
from tests.tolerances import assert_close
from tupe_fairseq import UsageError

transformers = pytest.importorskip("transformers", reason="transformers is not installed")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A BERT of 64 positions, and articles whose first sentence has their title."""
    folder = tmp_path_factory.mktemp("long")
    write(folder / "bert", "Model")
    draw = random.Random(0)
    made = []
    for _ in range(60):
        sentences = [" ".join(draw.choices(WORDS, k=12)).capitalize() + "." for _ in range(40)]
        made.append([sentences[0].split()[3], [" ".join(sentences)]])
    (folder / "articles.json").write_text(json.dumps(made))
    return folder


@pytest.fixture(scope="module")
def tokenizer(place):
    return transformers.AutoTokenizer.from_pretrained(place / "bert")


def test_texts(place, tokenizer):
    """The answer is once in each, near its place, and texts fill their length."""
    task = long_texts.read_task(place / "articles.json", tokenizer)
    for number in range(long_texts.TEXTS):
        text = long_texts.text_of(task, number, 512)
        assert text.sentences[text.answer] == task.answers[number]
        sizes = [len(each) for each in text.sentences]
        assert 512 - 2 - 64 < sum(sizes) <= 512 - 2
        share = sum(sizes[: text.answer]) / sum(sizes)
        assert abs(share - long_texts.PLACES[number % 3]) < 0.03
        assert long_texts.text_of(task, number, 512) == text, "the same for every model"


@pytest.mark.parametrize("way", long_texts.WAYS[1:])
def test_ways_of_the_source(way, place):
    """As transformers reads short texts, and, for long ones, by the positions that they name."""
    model = transformers.AutoModel.from_pretrained(place / "bert").eval()
    reader = long_texts.source_reader(model, way)
    short, long = (torch.randint(5, 17, (1, length)) for length in (64, 100))
    with torch.no_grad():
        assert_close(reader(short), model(short)[0])
        found = reader(long)
        assert found.shape[1] == (64 if way == "truncated" else 100)
        if way == "parts":
            second = torch.cat((long[:, :1], long[:, 63:]), 1)
            assert_close(found[:, 63:], model(second)[0][:, 1:])
        if way == "interpolated":
            table = model.embeddings.position_embeddings.weight
            places = torch.linspace(0, 63, 100)
            low = places.floor().long().clamp(max=62)
            rest = (places - low)[:, None]
            rows = table[low] * (1 - rest) + table[low + 1] * rest
            longer = transformers.BertModel(
                transformers.BertConfig(
                    **model.config.to_dict() | {"max_position_embeddings": 100}
                )
            ).eval()
            state = model.state_dict() | {"embeddings.position_embeddings.weight": rows}
            longer.load_state_dict(state)
            assert_close(found, longer(long)[0])


def test_a_call_continues(place, tmp_path, monkeypatch):
    """What is measured already is left out; the results have each query."""
    monkeypatch.setattr(long_texts, "TEXTS", 6)
    paths = [place / "articles.json", place / "bert", "source", "grouped", tmp_path / "out.json"]
    long_texts.main([*map(str, paths), "--lengths", "100"])
    first = json.loads((tmp_path / "out.json").read_text())
    assert set(first["source"]["100"][0]) == {"place", "answer", "text", "behind"}
    monkeypatch.setattr(
        long_texts, "answers", lambda *_: [dict.fromkeys(first["source"]["100"][0], 0)]
    )
    long_texts.main([*map(str, paths), "--lengths", "100", "120"])
    second = json.loads((tmp_path / "out.json").read_text())
    assert second["source"]["100"] == first["source"]["100"]
    assert len(second["source"]["120"]) == 1
    (few := tmp_path / "few.json").write_text("[]")
    with pytest.raises(UsageError, match="with 0 queries and 0 other sentences"):
        long_texts.main([*map(str, [few, *paths[1:]])])


def test_articles(tmp_path):
    """Every fourth article is left out, with its title; the others give paragraphs and texts."""
    words = " ".join(["word"] * 100)
    (folder := tmp_path / "AA").mkdir()
    for file in range(2):
        docs = [
            f'<doc id="{n}" url="u" title="A &amp; {n}">\nA &amp; {n}\n\n{n} {words}\n\nshort\n'
            f"{' '.join([words] * (n + 1))}\n</doc>\n"
            for n in range(4 * file, 4 * file + 4)
        ]
        (folder / f"wiki_0{file}").write_text("".join(docs))
    with tarfile.open(tmp_path / "AA.tar.xz", "w:xz") as archive:
        # The order of files in the archive has no effect.
        for name in ("wiki_01", "wiki_00"):
            archive.add(folder / name, f"AA/{name}")
    articles.main([str(tmp_path / "AA.tar.xz"), str(tmp_path / "out")])
    kept = json.loads((tmp_path / "out/articles.json").read_text())
    assert [title for title, _ in kept] == ["A & 0", "A & 4"]
    assert kept[0][1] == [f"0 {words}", "short", words]
    paragraphs = (tmp_path / "out/paragraphs.txt").read_text().splitlines()
    # Of the six others, each has a paragraph of 101 words; those of up to 400 are read, too.
    assert paragraphs[:2] == [f"1 {words}", " ".join([words] * 2)]
    assert len(paragraphs) == 6 + 3
    long = (tmp_path / "out/long.txt").read_text().splitlines()
    assert [text.split()[0] for text in long] == ["2", "3", "5", "6", "7"]
