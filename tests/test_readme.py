"""The README runs: its code blocks; and the table of encodings equals the registry."""

import inspect
import re
import shutil

import pytest

from tests import ROOT
from tests.fairseq_commands import COMMON, train, train_translation
from tests.pages import blocks, commands
from tupe_fairseq.position import POSITION_ENCODINGS, build_position_encoding

README = ROOT / "README.md"
TRANSLATION = ROOT / "examples" / "translation" / "README.md"
PAGES = [ROOT / "README.md"]
for folder in (".github", "examples", "scripts", "tests", "tupe_fairseq"):
    PAGES += sorted((ROOT / folder).rglob("*.md"))
ENCODINGS = ROOT / "tupe_fairseq" / "position" / "README.md"
#: They keep the commands of the code that made them, which can be that of an older tag.
RECORDS = ("report.md", "plan.md")


def rows() -> dict[str, list[str]]:
    page = ENCODINGS.read_text(encoding="utf-8")
    table = re.findall(r"^\| `(\w+)`.*?\|(.*)\|$", page, flags=re.MULTILINE)
    return {name: [cell.strip() for cell in cells.split("|")] for name, cells in table}


def test_table_has_every_encoding():
    assert list(rows()) == list(POSITION_ENCODINGS)


@pytest.mark.parametrize("name", list(POSITION_ENCODINGS))
def test_row(name):
    sides = not POSITION_ENCODINGS[name].causal_only
    sizes = {"vocab_size": 32769}
    encoding = build_position_encoding(name, 768, 12, 512, sides, num_layers=12, **sizes)
    seen = encoding.at(0)
    layer = seen.build_layer_terms()
    own = sum(p.numel() for p in encoding.parameters())
    per_layer = sum(p.numel() for p in layer.parameters()) if layer is not None else 0
    _, paper, parameters, beyond, _, options = rows()[name]
    assert paper[-4:] in inspect.getmodule(type(encoding)).__doc__ or name == "none"
    assert parameters == f"{own + 12 * per_layer:,}"
    assert (beyond == "--extend-positions") == bool(encoding.position_tables())
    assert options == ", ".join(f"`{option.flag}`" for option in encoding.options())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_scripts_and_links_exist(page):
    missing = []
    for program, *words in commands(page) if page.name not in RECORDS else ():
        script = words[0] if words and program in ("bash", "python") else ""
        if words[:1] == ["-m"] and words[1].startswith("examples."):
            script = words[1].replace(".", "/")
            script += ".py" if (ROOT / f"{script}.py").exists() else "/__main__.py"
        if script.endswith((".py", ".sh")) and "$" not in script and not (ROOT / script).exists():
            missing.append(script)
    text = page.read_text(encoding="utf-8")
    for link, heading in re.findall(r"\]\(([^)#:]*)#?([^):]*)\)", text):
        target = page.parent / link if link else page
        target = target / "README.md" if heading and target.is_dir() else target
        if not target.exists() or (heading and heading not in headings(target)):
            missing.append(f"{link}#{heading}")
    assert not missing


def headings(page) -> set[str]:
    """The headings of a page, as GitHub links to them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.*)", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


#: Commands of fairseq that read a set in batches, and the flag without which they drop its end.
READERS = ("train", "validate", "generate", "eval-lm")
WHOLE = "--required-batch-size-multiple"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_read_whole_sets(page):
    """Or the page says what they leave out. Calls of fairseq-train without a task are parts."""
    readers = {f"fairseq-{name}" for name in READERS}
    for program, *words in commands(page):
        if program in readers and (program != "fairseq-train" or "--task" in words):
            assert {WHOLE, "1"} <= {*words} or f"{WHOLE} 8`" in page.read_text(), words
    # Advice to evaluate by fairseq's commands names the flag.
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    if (
        re.search("`fairseq-(validate|generate|eval-lm)`", text)
        and ROOT / "tests" not in page.parents
    ):
        assert WHOLE in page.read_text()


@pytest.mark.parametrize("path", sorted((ROOT / "examples").rglob("config/**/*.yaml")), ids=str)
def test_configurations_read_whole_sets(path):
    settings = path.read_text(encoding="utf-8")
    assert "batch_size: " not in settings or "required_batch_size_multiple: 1" in settings


def training_flags(page) -> list[str]:
    """The flags of the page's call of fairseq-train."""
    ((_, data, *flags),) = commands(page, "fairseq-train")
    assert data == "data-bin"
    return flags


def test_training_command(toy_masked_lm_data, tmp_path):
    """The recipe as printed, with toy data in place of data-bin and a model small enough."""
    smaller = ("--encoder-layers", 1, "--encoder-embed-dim", 24, "--max-update", 2)
    flags = (*training_flags(README), *COMMON, *smaller, "--update-freq", 1)
    assert train(toy_masked_lm_data, *flags, "--save-dir", tmp_path).exists()


def test_translation_command(toy_translation_data, tmp_path):
    """The same with a small transformer."""
    smaller = ("--encoder-layers", 1, "--decoder-layers", 1, "--max-update", 2)
    narrower = ("--encoder-embed-dim", 24, "--decoder-embed-dim", 24)
    flags = (*training_flags(TRANSLATION), *COMMON, *smaller, *narrower)
    assert train(toy_translation_data, *flags, "--save-dir", tmp_path).exists()


def run_blocks(page) -> dict:
    """The names after all Python blocks of a page."""
    namespace: dict = {}
    for block in blocks(page, "python"):
        exec(block, namespace)
    return namespace


def test_python(in_quickstart):
    """With toy models where the quickstart would have put its own."""
    names = run_blocks(README)
    assert names["encoder"].config.d_head == 16
    assert names["roberta"].positional_correlations(32).shape == (4, 32, 32)
    assert "model" in run_blocks(ROOT / "tupe_fairseq" / "fairseq" / "hub" / "README.md")["state"]
    names = run_blocks(ROOT / "examples" / "quickstart" / "README.md")
    assert "sentence_classification_head" in names["sentiment"].model.classification_heads


def test_translation_in_python(toy_translation_data, tmp_path, monkeypatch):
    translator = tmp_path / "outputs" / "translation" / "tiny" / "tupe_r.1"
    shutil.copytree(toy_translation_data, translator)
    shutil.copy(
        train_translation(toy_translation_data, tmp_path / "t", "--max-update", 1), translator
    )
    monkeypatch.chdir(tmp_path)
    assert run_blocks(TRANSLATION)["translator"]


#: Versions of programs, addresses and code hold numbers that are no results.
OTHERS = r"(?:Python|torch|transformers) [\d.]+(?: (?:to|or) [\d.]+)?|https://\S+|`.*?`"


def sections() -> list[str]:
    """Paragraphs, and tables with the explanations below them, without code blocks."""
    text = re.sub(r"```.*?```", "", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    return text.replace("|\n\n- **", "|\n- **").split("\n\n")


def linked(section: str) -> str:
    """The texts and results that a section links to."""
    paths = [README.parent / link for link in re.findall(r"\]\(([^)#:]+)", section)]
    paths = [path / "README.md" if path.is_dir() else path for path in paths]
    files = [path for path in paths if path.suffix in (".md", ".json") and path.exists()]
    return re.sub(r"(?<=\d),(?=\d{3})", "", " ".join(f.read_text(encoding="utf-8") for f in files))


def test_table_of_choice_is_that_of_the_benchmark():
    report = (ROOT / "examples/study/benchmark/report.md").read_text(encoding="utf-8")
    table = [line for line in README.read_text(encoding="utf-8").splitlines() if " ± " in line]
    assert len(table) == 10
    assert set(table) <= set(report.splitlines())


def test_numbers_are_in_the_files_that_are_linked():
    """Decimal numbers, percentages and thousands are rounded values of numbers there."""
    checked = 0
    missing = []
    for section in sections():
        known = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", linked(section))]
        told = re.sub(OTHERS, "", section)
        for number in re.findall(r"\d+\.\d+|\d+(?= %)|\d,\d{3}", told):
            value = float(number.replace(",", ""))
            places = len(number.partition(".")[2])
            checked += 1
            if value not in [round(each, places) for each in known]:
                missing.append((number, section[:40]))
    assert checked > 20
    assert not missing
