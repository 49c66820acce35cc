"""examples/gallery: a card for each registered encoding, in pages that are up to date."""

import re
import sys
from html.parser import HTMLParser

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


class Page(HTMLParser):
    """Cards with the sources of their images, choices, and addresses of other files."""

    def __init__(self, text: str):
        super().__init__()
        self.cards: dict[str, list[str]] = {}
        self.choices: list[str] = []
        self.addresses: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        if tag not in ("meta", "input", "img"):
            self.open.append(tag)
        if tag == "article":
            self.cards[values["id"]] = []
        if tag == "input":
            self.choices.append(values["value"])
        if tag == "img":
            self.cards[list(self.cards)[-1]].append(values["src"])
        self.addresses += [values[key] for key in ("src", "href") if key in values]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_every_encoding_has_a_card_with_its_figure():
    page = Page((CARDS / "gallery.html").read_text(encoding="utf-8"))
    assert list(page.cards) == page.choices == NAMES, f"{COMMAND} adds cards."
    text = (CARDS / "gallery.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\w+)$", text, flags=re.MULTILINE) == NAMES
    for name, images in page.cards.items():
        assert images == ([] if name == "none" else [f"{name}/maps.png"])
        for image in images:
            assert f"]({image})" in text
            assert Image.open(CARDS / image).size == (720, 330)
    assert all(address.endswith("/maps.png") for address in page.addresses), "no other files"
    assert not page.open


@pytest.mark.slow
def test_committed_pages_are_those_of_the_code(tmp_path):
    (tmp_path / "results.json").write_bytes((CARDS / "results.json").read_bytes())
    pages.write_pages(tmp_path)
    for name in ("gallery.md", "gallery.html"):
        same = (tmp_path / name).read_text("utf-8") == (CARDS / name).read_text("utf-8")
        assert same, f"{name} is old: {COMMAND} writes it again."


def test_gallery_is_small():
    assert sum(path.stat().st_size for path in CARDS.rglob("*")) < 2_000_000


@pytest.mark.parametrize("name", NAMES)
def test_facts_are_those_of_the_table(name):
    """The table of encodings, which is written by hand."""
    facts = card(name).facts
    enters, _, parameters, backends, beyond, decoder, _ = rows()[name]
    assert facts["Enters at"] == enters
    assert facts["Parameters"] == parameters
    assert facts["Backends"] == backends
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
    facts = {name: card(name).facts for name in ("alibi", "cope", "fox", "shaw", "rope", "tupe_a")}
    assert (
        facts["alibi"]["Cost"]
        == "in each head a number for each distance, O(T), once for all layers"
    )
    assert "O(T²)" in facts["cope"]["Cost"]
    assert facts["cope"]["Models"] == "decoders only"
    encoder, decoder = facts["fox"]["Cost"].split(". In a decoder: ")
    assert "O(T²)" in encoder
    assert "O(T²)" not in decoder
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
    page = Page((tmp_path / "gallery.html").read_text(encoding="utf-8"))
    figures = {name for name, images in page.cards.items() if images}
    assert (list(page.cards), figures) == (NAMES, {"rope", "t5"})
    assert {path.parent.name for path in tmp_path.glob("*/maps.png")} == figures
