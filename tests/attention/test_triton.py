"""The backend `triton` where there may be no GPU: interpreted, compiled, refused."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.attention.cases import EMBED_DIM, INTERPRETED, build, normal, run
from tests.attention.triton_sources import compiled
from tupe_fairseq import UsageError
from tupe_fairseq.attention import choose_backend, needs_of

FOLDER = Path(__file__).parent
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="triton is not installed; it comes with torch for CUDA",
)
needs_compiler = pytest.mark.skipif(INTERPRETED, reason="interpreted, not compiled")


@needs_triton
@needs_compiler
@pytest.mark.slow
def test_in_the_interpreter():
    """Its own tests, and those of all backends that are small, in a process of their own."""
    shared = ("test_against_reference.py", "test_layout.py", "test_hooks.py")
    files = [str(FOLDER / name) for name in ("test_triton_kernels.py", *shared)]
    # It has no float64.
    chosen = ("-k", "triton and not float64")
    flags = ("-q", "-p", "no:cacheprovider", "--no-header", "--tb=short")
    found = subprocess.run(
        [sys.executable, "-m", "pytest", *flags, *chosen, *files],
        env=os.environ | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stdout[-5000:] + found.stderr[-1000:]
    assert " passed" in found.stdout


#: Of the kernels: with everything that is optional, and without.
OPTIONAL = {"all": True, "none": False}


@needs_triton
@needs_compiler
@pytest.mark.parametrize("optional", OPTIONAL.values(), ids=OPTIONAL)
@pytest.mark.parametrize("architecture", [80, 90, 100])
@pytest.mark.parametrize("kernel", ["attend", "of_queries", "of_keys_and_values", "of_bias"])
def test_compiles_for_gpus(kernel, architecture, optional):
    """Without a GPU: to machine code, and within the shared memory that a program may have."""
    found = compiled(kernel, architecture, optional)
    assert found.asm["cubin"]
    assert found.metadata.shared <= 99 << 10


def test_refuses_what_is_not_there(monkeypatch):
    encoding, attention = build("tupe_r", 5)
    x = normal(1, 5, EMBED_DIM, seed=0)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    with pytest.raises(UsageError, match=r"'triton', but .* GPUs, .* is on cpu; use auto"):
        run(encoding, attention, x, backend="triton")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="triton is not installed"):
        run(encoding, attention, x, backend="triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    with pytest.raises(UsageError, match="this model is in float64"):
        run(*build("tupe_r", 5, torch.float64), x.double(), backend="triton")


def test_auto_waits_until_it_is_measured():
    for case in ("none", "t5", "tupe_a", "tupe_r", "alibi", "shaw", "deberta"):
        encoding = build(case, 5)[0]
        terms = encoding.build_layer_terms()
        for device in ("cpu", "cuda"):
            for weights in (True, False):
                chosen = choose_backend("auto", needs_of(encoding, terms, weights=weights), device)
                assert chosen.name != "triton"
