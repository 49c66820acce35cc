"""examples/gallery: a card for each registered encoding, in pages that are up to date."""

import re
import sys

import pytest
import torch
from PIL import Image

from examples.gallery import build, pages, train
from examples.gallery.card import card
from examples.shared.results import read_results
from tests import ROOT
from tests.test_readme import rows
from tupe_fairseq.position import POSITION_ENCODINGS

CARDS = ROOT / "examples" / "gallery" / "cards"
COMMAND = "python -m examples.gallery.build --out examples/gallery/cards"
NAMES = list(POSITION_ENCODINGS)


def figures_of(page: str) -> dict[str, list[str]]:
    """Each card of the page with the sources of its images."""
    _, *cards = re.split(r'<article id="(\w+)">', page)
    images = (re.findall(r'<img [^>]*src="([^"]*)"', card) for card in cards[1::2])
    return dict(zip(cards[::2], images, strict=True))


def test_every_encoding_has_a_card_with_its_figure():
    page = (CARDS / "gallery.html").read_text(encoding="utf-8")
    expected = {name: [] if name == "none" else [f"{name}/maps.png"] for name in NAMES}
    assert list(figures_of(page).items()) == list(expected.items()), f"{COMMAND} adds cards."
    assert re.findall(r'<input [^>]*value="(\w+)"', page) == NAMES
    addresses = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert addresses == [image for images in expected.values() for image in images], "no others"
    for tag in ("article", "header", "div", "figure", "dl", "dt", "dd", "details", "footer", "p"):
        assert len(re.findall(rf"<{tag}[ >]", page)) == page.count(f"</{tag}>"), tag
    text = (CARDS / "gallery.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\w+)$", text, flags=re.MULTILINE) == NAMES
    for image in addresses:
        assert f"]({image})" in text
        assert Image.open(CARDS / image).size == (720, 330)


@pytest.mark.slow
def test_committed_pages_are_those_of_the_code(tmp_path):
    (tmp_path / "results.json").write_bytes((CARDS / "results.json").read_bytes())
    pages.write_pages(tmp_path)
    for name in ("gallery.md", "gallery.html"):
        same = (tmp_path / name).read_text("utf-8") == (CARDS / name).read_text("utf-8")
        assert same, f"{name} is old: {COMMAND} writes it again."


@pytest.mark.parametrize("name", NAMES)
def test_facts_are_those_of_the_table(name):
    """The table of encodings, which is written by hand."""
    facts = card(name).facts
    enters, _, parameters, beyond, decoder, _ = rows()[name]
    assert facts["Enters at"] == enters
    assert facts["Parameters"] == parameters
    assert (decoder == "decoders only") == ("Models" in facts)
    found = facts["Beyond the trained length"]
    if beyond == "--extend-positions":
        assert found.startswith("`--extend-positions hierarchical`")
    elif name in ("hierarchical", "xpos"):
        assert found.startswith("limited by an option: ")
    else:
        assert found == "any length"


def test_facts_that_differ():
    """What is stored follows from the hooks."""
    facts = {name: card(name).facts for name in ("alibi", "shaw", "rope", "xpos", "tupe_a")}
    assert (
        facts["alibi"]["Cost"]
        == "in each head a number for each distance, O(T), once for all layers"
    )
    assert facts["xpos"]["Models"] == "decoders only"
    assert facts["shaw"]["Cost"].startswith("products with vectors by distance")
    assert facts["rope"]["Enters at"] == "query, key"
    assert "without training" in facts["tupe_a"]["Beyond the trained length"]


@pytest.mark.slow
def test_models_learn_the_task_by_positions_alone():
    """T5's bias is largest three places to the left; without positions, a model guesses."""
    rights = {}
    for name in ("t5", "none"):
        torch.manual_seed(1)
        random = torch.Generator().manual_seed(1)
        model = train.Model(name)
        train.train(model, 200, random)
        rights[name] = train.share_right(model, random)
        found = train.maps_of(model)
        assert (found is None) == (name == "none")
        if found is not None:
            assert -3 in [int(head[16].argmax()) - 16 for head in found.maps]
    assert rights["t5"] > 0.8
    assert rights["none"] < 0.2


@pytest.mark.slow
def test_command_trains_what_is_missing(tmp_path, monkeypatch, forking_python, capsys):
    monkeypatch.setattr(sys, "executable", forking_python)
    words = ["--out", str(tmp_path), "--updates", "1", "--only"]
    build.main([*words, "rope", "none"])
    build.main([*words, "rope", "t5"])
    assert "1 of 2 runs are complete already" in capsys.readouterr().out
    runs = read_results(tmp_path)["runs"]
    assert {name for name, run in runs.items() if "result" in run} == {"none", "rope", "t5"}
    assert runs["rope"]["result"]["changed"] is False
    assert runs["t5"]["result"]["changed"] is True
    figures = figures_of((tmp_path / "gallery.html").read_text(encoding="utf-8"))
    assert list(figures) == NAMES
    with_image = {name for name, images in figures.items() if images}
    assert (
        with_image == {path.parent.name for path in tmp_path.glob("*/maps.png")} == {"rope", "t5"}
    )
