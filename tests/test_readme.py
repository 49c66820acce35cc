"""The README runs: its code blocks; and the table of encodings equals the registry."""

import inspect
import re
import shutil

import pytest

from tests import ROOT
from tests.fairseq_commands import COMMON, train, train_translation
from tests.pages import blocks, commands
from tupe_fairseq.attention import ATTENTION_BACKENDS, required_features
from tupe_fairseq.position import POSITION_ENCODINGS, build_position_encoding

README = ROOT / "README.md"
PAGES = [ROOT / "README.md"]
for folder in (".github", "examples", "scripts", "tests", "tupe_fairseq"):
    PAGES += sorted((ROOT / folder).rglob("*.md"))
ENCODINGS = ROOT / "tupe_fairseq" / "position" / "README.md"


def rows() -> dict[str, list[str]]:
    page = ENCODINGS.read_text(encoding="utf-8")
    table = re.findall(r"^\| `(\w+)`.*?\|(.*)\|$", page, flags=re.MULTILINE)
    return {name: [cell.strip() for cell in cells.split("|")] for name, cells in table}


def test_table_has_every_encoding():
    assert list(rows()) == list(POSITION_ENCODINGS)


@pytest.mark.parametrize("name", list(POSITION_ENCODINGS))
def test_row(name):
    sides, sizes = not POSITION_ENCODINGS[name].causal_only, {"vocab_size": 32769}
    encoding = build_position_encoding(name, 768, 12, 512, sides, num_layers=12, **sizes)
    seen = encoding.at(0)
    layer = seen.build_layer_terms()
    own = sum(p.numel() for p in encoding.parameters())
    per_layer = sum(p.numel() for p in layer.parameters()) if layer is not None else 0
    features = required_features(seen, layer)
    able = [name for name, b in ATTENTION_BACKENDS.items() if not b.unsupported(features)]
    _, paper, parameters, backends, beyond, _, options = rows()[name]
    assert paper[-4:] in inspect.getmodule(type(encoding)).__doc__ or name == "none"
    assert parameters == f"{own + 12 * per_layer:,}"
    assert backends == ", ".join(able)
    assert (beyond == "--extend-positions") == bool(encoding.position_tables())
    assert options == ", ".join(f"`{option.flag}`" for option in encoding.options())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_scripts_and_links_exist(page):
    missing = []
    for program, *words in commands(page):
        script = words[0] if words and program in ("bash", "python") else ""
        if words[:1] == ["-m"] and words[1].startswith("examples."):
            script = words[1].replace(".", "/") + ".py"
        if script.endswith((".py", ".sh")) and "$" not in script and not (ROOT / script).exists():
            missing.append(script)
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    missing += [link for link in links if not (page.parent / link).exists()]
    assert not missing


def trainings() -> list[list[str]]:
    """The flags of both calls of fairseq-train."""
    found = commands(README, "fairseq-train")
    assert [words[1] for words in found] == ["data-bin", "data-bin"]
    return [words[2:] for words in found]


def test_training_command(toy_masked_lm_data, tmp_path):
    """The recipe as printed, with toy data in place of data-bin and a model small enough."""
    words = trainings()[0]
    smaller = ("--encoder-layers", 1, "--encoder-embed-dim", 24, "--max-update", 2)
    flags = (*words, *COMMON, *smaller, "--update-freq", 1, "--save-dir", tmp_path)
    assert train(toy_masked_lm_data, *flags).exists()


def test_translation_command(toy_translation_data, tmp_path):
    """The same with a small transformer."""
    words = trainings()[1]
    smaller = ("--encoder-layers", 1, "--decoder-layers", 1, "--max-update", 2)
    narrower = ("--encoder-embed-dim", 24, "--decoder-embed-dim", 24)
    flags = (*words, *COMMON, *smaller, *narrower, "--save-dir", tmp_path)
    assert train(toy_translation_data, *flags).exists()


def test_python(in_quickstart, toy_translation_data):
    """With toy models where the quickstart and the recipe would have put theirs."""
    translator = in_quickstart / "outputs" / "translation" / "tiny" / "tupe_r.1"
    shutil.copytree(toy_translation_data, translator)
    flags = ("--max-update", 1)
    shutil.copy(train_translation(toy_translation_data, in_quickstart / "t", *flags), translator)
    namespace: dict = {}
    for block in blocks(README, "python"):
        exec(block, namespace)
    assert namespace["encoder"].config.d_head == 16
    assert namespace["roberta"].positional_correlations(32).shape == (4, 32, 32)
