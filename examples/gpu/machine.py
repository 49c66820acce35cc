"""What the results depend on: device, versions, state of the source code."""

import hashlib
import importlib.metadata
import importlib.util
import os
import platform

import torch

from examples.shared.markdown import ROOT
from tupe_fairseq.machine import commit, processor

#: Folders and endings of files that decide the results.
FOLDERS = ("tupe_fairseq", "scripts", "examples", "tests")
ENDINGS = {".py", ".c", ".sh"}
LIBRARIES = ("transformers", "ve-fairseq", "fairseq-fixed", "fairseq")


def about() -> dict[str, str]:
    """Device, versions and commit; results of equal ones are of the same run."""
    found = {
        "device": device_name(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "CUDA": torch.version.cuda or "none",
    }
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {**found, "commit": commit(ROOT), "sources": digest_of_sources()}


def identity(about: dict[str, str]) -> dict[str, str]:
    """What results must share to be of one run: all but the commit, which `sources` replaces."""
    return {key: value for key, value in about.items() if key != "commit"}


def has(library: str) -> bool:
    """Whether it is installed."""
    return importlib.util.find_spec(library) is not None


def device_name() -> str:
    """The GPU with its compute capability and memory, or the processor."""
    if torch.cuda.is_available():
        facts = torch.cuda.get_device_properties(0)
        memory = f"{facts.total_memory / 2**30:.0f} GiB"
        return f"{facts.name}, compute capability {facts.major}.{facts.minor}, {memory}"
    return f"{processor()}, {os.cpu_count()} cores"


def digest_of_sources() -> str:
    """A checksum of the source code, which also tells uncommitted changes apart."""
    digest = hashlib.sha256()
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in ENDINGS and path.is_file():
                digest.update(f"{path.relative_to(ROOT)}\n".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
