"""The layers of the package: their imports go in one direction, without circles; their list."""

import re
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

from tests import ROOT

PACKAGE = "tupe_fairseq"


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """Which file imports which; imports inside functions count."""
    found = grimp.build_graph(PACKAGE, cache_dir=None)
    # A folder that imports all its files by pkgutil does so unseen by readers of the source.
    for file in (ROOT / PACKAGE).rglob("__init__.py"):
        if "pkgutil" in file.read_text():
            folder = ".".join(file.parent.relative_to(ROOT).parts)
            for child in found.find_children(folder):
                found.add_import(importer=folder, imported=child)
    return found


def test_contracts_are_kept():
    program = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [program, "--config", ".importlinter", "--no-cache", "--no-logo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_circles_of_files(graph):
    circles = []
    for importer in graph.modules:
        for imported in graph.find_modules_directly_imported_by(importer):
            way_back = graph.find_shortest_chain(importer=imported, imported=importer)
            if way_back:
                circles.append(" -> ".join((importer, *way_back)))
    assert not circles, "\n".join(sorted(circles))


def test_contributing_names_what_exists():
    """Paths, and in the drawing all rooms, in .github/CONTRIBUTING.md."""
    text = (ROOT / ".github/CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = re.findall(r"\b(?:tupe_fairseq|tests|examples|scripts)/[\w./-]*\w", text)
    assert len(paths) > 20
    missing = [path for path in paths if "NAME" not in path and not (ROOT / path).exists()]
    assert not missing
    rooms = {file.parent.name for file in (ROOT / PACKAGE).glob("*/__init__.py")}
    drawing = text.partition("## The rooms")[2].split("```")[1]
    assert rooms <= {*drawing.split()}


def test_logging_stays_as_it_was():
    """fairseq would turn on the debugging output of all libraries, and ask for tensorboardX."""
    code = "import logging, tupe_fairseq; print(logging.root.level, logging.root.handlers)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("30 []\n", "")
