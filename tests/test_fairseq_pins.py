"""setup.py and scripts/fairseq.txt require the same distributions of fairseq."""

import re

from packaging.requirements import Requirement

from tests.scripts import ROOT

PYTHONS = ("3.10", "3.11", "3.12")
SYSTEMS = (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"))


def installed(requirements: list[Requirement], python: str, system: str, machine: str) -> str:
    """The one requirement that applies."""
    environment = {"python_version": python, "sys_platform": system, "platform_machine": machine}
    (found,) = [r for r in requirements if r.marker.evaluate(environment)]
    return f"{found.name}{found.specifier}"


def test_same_versions_everywhere():
    text = (ROOT / "scripts" / "fairseq.txt").read_text().replace("\\\n", "")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    pinned = [Requirement(line.partition("--hash")[0]) for line in lines]
    assert all(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", line) for line in lines)
    namespace = {"__file__": str(ROOT / "setup.py")}
    source = (ROOT / "setup.py").read_text().partition("FAIRSEQ = [")
    constants = source[0].partition("LINUX_X86_64")
    exec("LINUX_X86_64" + constants[2], namespace)
    exec(source[1] + source[2].partition("]\n")[0] + "]", namespace)
    named = [Requirement(r) for r in namespace["FAIRSEQ"] if "fairseq" in r]
    for python in PYTHONS:
        for system in SYSTEMS:
            assert installed(named, python, *system) == installed(pinned, python, *system)
