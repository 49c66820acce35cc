"""What setup.py requires, the files that name the same versions, and scripts/environment.sh."""

import re
import runpy
import shutil
import subprocess
import sys
import tarfile
from fnmatch import fnmatch
from pathlib import Path
from zipfile import ZipFile

import pytest
import setuptools
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests import ROOT
from tests.processes import write_program
from tupe_fairseq.base.tracing import OLDEST_EXPORTER

SYSTEMS = (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"))
NEEDED = "error: Python 3.10 to 3.13 is needed (best: 3.11)"
SCRIPT = (ROOT / "scripts/environment.sh").read_text().removesuffix("\nsetup_environment\n")


@pytest.fixture
def package(monkeypatch) -> dict:
    """The arguments of setup.py's `setup`."""
    arguments = {}
    monkeypatch.setattr(setuptools, "setup", lambda **given: arguments.update(given))
    runpy.run_path(str(ROOT / "setup.py"))
    return arguments


@pytest.fixture
def pythons(package) -> list[str]:
    """Every supported Python, oldest first."""
    every = (f"3.{minor}" for minor in range(30))
    return [python for python in every if python in SpecifierSet(package["python_requires"])]


def pins(name: str) -> list[Requirement]:
    text = (ROOT / "scripts" / name).read_text().replace("\\\n", "")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [Requirement(line.partition("--hash")[0]) for line in lines]


def wanted(requirements: list[Requirement], python: str, system: str, machine: str) -> dict:
    """The specifier of each package that applies there."""
    environment = {"python_version": python, "sys_platform": system, "platform_machine": machine}
    applicable = [r for r in requirements if not r.marker or r.marker.evaluate(environment)]
    found = {r.name: r.specifier for r in applicable}
    assert len(found) == len(applicable), environment
    return found


def test_same_versions_everywhere(package, pythons):
    required = [Requirement(text) for text in package["install_requires"]]
    for python in pythons:
        for system in SYSTEMS:
            everything = wanted(required, python, *system)
            fairseq = {name: v for name, v in everything.items() if "fairseq" in name}
            assert wanted(pins("fairseq.txt"), python, *system) == fairseq
            constraints = wanted(pins("constraints.txt"), python, *system)
            for name in everything.keys() & constraints.keys():
                (pin,) = constraints[name]
                assert pin.version in everything[name], (name, python, system)
            if "fairseq-fixed" in fairseq:  # It requires exactly these.
                assert str(constraints["hydra-core"]) == "==1.3.2"
                assert str(constraints["omegaconf"]) == "==2.3.0"


def build(kind: str, out: Path) -> set[str]:
    """Build a distribution; the names of its files."""
    out.mkdir()
    folders = ("egg_info", "--egg-base", out, "build", "--build-base", out / "build")
    command = (sys.executable, "setup.py", "-q", *folders, kind, "-d", out)
    subprocess.run([str(word) for word in command], cwd=ROOT, check=True, capture_output=True)
    if kind == "bdist_wheel":
        (wheel,) = out.glob("*.whl")
        return set(ZipFile(wheel).namelist())
    (archive,) = out.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        return {name.partition("/")[2] for name in opened.getnames()}


def test_distributions_have_code_kernels_and_the_mark_of_types(tmp_path):
    files = {
        file.relative_to(ROOT).as_posix()
        for file in (ROOT / "tupe_fairseq").rglob("*")
        if file.suffix in (".py", ".c", ".typed")
    }
    assert "tupe_fairseq/py.typed" in files
    wheel = build("bdist_wheel", tmp_path / "wheel")
    assert {name for name in wheel if ".dist-info/" not in name} == files
    source = build("sdist", tmp_path / "source")
    assert files | {"setup.py", "README.md", "LICENSE"} <= source, "what the wheel is built from"
    # setuptools adds tests/test*.py by itself.
    others = {name for name in source if not fnmatch(name, "tests/test_*.py")}
    assert not {name for name in others if name.startswith(("tests/", "examples/", "outputs/"))}


def test_documents_name_the_supported_versions(package, pythons):
    (torch,) = (r for r in map(Requirement, package["install_requires"]) if r.name == "torch")
    oldest = str(torch.specifier).removeprefix(">=")
    page = " ".join((ROOT / "README.md").read_text().split())
    assert f"Python {pythons[0]} to {pythons[-1]} and torch {oldest} or newer" in page
    assert f"Python {pythons[0]} to {pythons[-1]} is needed" in NEEDED
    assert re.search(r'"\$\{TORCH:=(\S+)\}"', SCRIPT)[1] in torch.specifier
    assert f"`--to onnx` needs torch {OLDEST_EXPORTER}" in page


def bash(folder: Path, commands: str, path: str, **variables: str) -> str:
    """The output of commands after those of environment.sh, in a folder."""
    ended = subprocess.run(
        [shutil.which("bash"), "-c", f"{SCRIPT}\n{commands}"],
        cwd=folder,
        env={"PATH": path, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return ended.stdout


@pytest.mark.parametrize(
    ("python", "told"),
    [
        ("", "kept"),
        (sys.executable, "kept"),
        ("stub", "other"),
        ("old", f"other\n{NEEDED}, but old is Python 2. Install one"),
        ("none", f"other\n{NEEDED}, but none is not there. Install one"),
    ],
)
def test_chosen_python(tmp_path, python, told):
    """PYTHON=... makes .venv anew where it is of another one, and must be one that will do."""
    write_program(tmp_path / "stub", f"echo {sys.executable}")
    write_program(tmp_path / "old", 'test "$1" = -c || echo Python 2')
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", ".venv"], cwd=tmp_path, check=True
    )
    path = f"{tmp_path}:{Path(sys.executable).parent}:/usr/bin:/bin"
    commands = "of_chosen_python && echo kept || echo other\nfind_python"
    assert bash(tmp_path, commands, path, PYTHON=python).startswith(told)


def test_the_environment_of_another_folder_stays(tmp_path):
    """`.venv` may be a link to it."""
    other = tmp_path / "other"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", other], check=True)
    (folder := tmp_path / "folder").mkdir()
    (folder / ".venv").symlink_to(other)
    told = bash(folder, f"make_venv {sys.executable}", "/usr/bin:/bin")
    assert (
        told == f"error: .venv is a link to {other}, which would be replaced: remove the link.\n"
    )
    assert (other / "bin/python").exists()


def test_supported_pythons_are_those_of_setup(pythons, tmp_path):
    for minor in range(8, 16):
        version = f"import sys; sys.version_info = (3, {minor}, 1)"
        write_program(tmp_path / "python", f'exec {sys.executable} -c "{version}\n$2"')
        told = bash(tmp_path, "find_python", str(tmp_path), PYTHON="python")
        assert told.startswith("error: ") != (f"3.{minor}" in pythons), told


def test_without_python_uv_gets_one(tmp_path):
    """A Python that uv has, or otherwise one that it downloads."""
    downloads = 'echo "$*" >>calls; [ $2 = install ] && : >there; [ -e there ] || exit 1'
    write_program(tmp_path / "uv", f"{downloads}; [ $2 != find ] || echo {sys.executable}")
    told = bash(tmp_path, "find_python", str(tmp_path))
    assert told == f"getting Python 3.11 with uv\n{sys.executable}\n"
    assert bash(tmp_path, "find_python", str(tmp_path)) == f"{sys.executable}\n"
    assert (tmp_path / "calls").read_text().count("python install 3.11\n") == 1
    write_program(tmp_path / "uv", "false")
    assert bash(tmp_path, "find_python", str(tmp_path)).endswith("uv cannot get Python 3.11.\n")


def test_without_python_and_uv_both_are_named(tmp_path):
    told = bash(tmp_path, "find_python", str(tmp_path))
    assert re.fullmatch(r"error: Python .*apt install python3-venv.*astral\.sh.*sh\n", told), told


def test_wheels_of_fairseq(package, pythons, tmp_path):
    """The script expects a wheel where setup.py requires the distribution that has wheels."""
    required = [Requirement(text) for text in package["install_requires"]]
    for python in pythons:
        version = f"import sys; sys.version_info = ({python.replace('.', ', ')}, 1)"
        write_program(tmp_path / ".venv/bin/python", f'exec {sys.executable} -c "{version}\n$2"')
        for system, machine in SYSTEMS:
            write_program(tmp_path / "uname", f"echo {system.capitalize()} {machine}")
            told = bash(tmp_path, "has_fairseq_wheel && echo wheel", str(tmp_path))
            needs = "ve-fairseq" in wanted(required, python, system, machine)
            assert told == ("wheel\n" if needs else ""), (python, system, machine)


@pytest.mark.parametrize("missing", ["compiler", "headers", None])
def test_what_a_build_needs(missing, tmp_path):
    """What is missing is told before anything is downloaded."""
    write_program(tmp_path / "uname", "echo Linux aarch64")
    write_program(tmp_path / ".venv/bin/python", f"exit {int(missing == 'headers')}")
    if missing != "compiler":
        write_program(tmp_path / "c++", "")
    told = bash(tmp_path, "pip_install() { echo pip; }\ninstall_packages", str(tmp_path))
    if missing:
        assert re.fullmatch(r"error: fairseq must be built .*install g\+\+ python3-dev.*\n", told)
    else:
        assert "building fairseq from source, which takes about three minutes\n" in told
