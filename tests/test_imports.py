"""The package's rooms import in one direction, and no two files import each other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = "tupe_fairseq"
#: Rooms whose __init__.py imports all their files by pkgutil, which no reader of source sees.
IMPORT_ALL_FILES = tuple(
    f"{PACKAGE}.{room}" for room in ("position", "attention", "interop.formats")
)
#: Imports that close a circle today and are to go.
TO_GO = (("attention.causal_attention", "attention"),)


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """Who imports whom, file by file; imports inside functions count too."""
    found = grimp.build_graph(PACKAGE, cache_dir=None)
    for room in IMPORT_ALL_FILES:
        for file in found.find_children(room):
            found.add_import(importer=room, imported=file)
    for importer, imported in TO_GO:
        found.remove_import(
            importer=f"{PACKAGE}.{importer}",
            imported=f"{PACKAGE}.{imported}",
        )
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


def test_no_file_imports_itself_by_way_of_others(graph):
    circles = []
    for importer in graph.modules:
        for imported in graph.find_modules_directly_imported_by(importer):
            way_back = graph.find_shortest_chain(importer=imported, imported=importer)
            if way_back:
                circles.append(" -> ".join((importer, *way_back)))
    assert not circles, "\n".join(sorted(circles))


def test_rooms_that_import_all_their_files_are_known(graph):
    sources = {
        Path(p).parent.name
        for p in (ROOT / PACKAGE).rglob("__init__.py")
        if "pkgutil" in p.read_text()
    }
    assert sources == {room.rpartition(".")[2] for room in IMPORT_ALL_FILES}
