"""Fixtures for all tests: toy data that fairseq can train on, written once a session."""

import gc
import importlib.util
import logging
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests import ROOT, triton_interpreter
from tupe_fairseq.kernels import native

if importlib.util.find_spec("hypothesis") is not None:
    from hypothesis import HealthCheck, settings

    # Nothing depends on how fast the machine is. Examples may share fixtures.
    allowed = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
    settings.register_profile("unhurried", deadline=None, suppress_health_check=allowed)
    settings.load_profile("unhurried")


#: The tests in tests/cuda and tests/attention that need no fairseq run where there is none.
if importlib.util.find_spec("fairseq") is not None:
    from tests import fairseq_commands, processes, toy_data
    from tupe_fairseq.fairseq.models import prepare_process

    # As under fairseq's commands, many of which the tests run in this process.
    prepare_process()


@contextmanager
def restored_log_levels() -> Iterator[None]:
    """Restore the levels of all loggers after the block; scripts set that of the root logger."""
    loggers = [logging.getLogger(), *logging.getLogger().manager.loggerDict.values()]
    levels = [(one, one.level) for one in loggers if isinstance(one, logging.Logger)]
    disabled = logging.root.manager.disable
    try:
        yield
    finally:
        logging.disable(disabled)
        for one, level in levels:
            # Setting a level empties the caches of all loggers.
            if one.level != level:
                one.setLevel(level)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run files with slow tests first, so that no process waits for them at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """Leave what all tests share out of garbage collections, which would take twice as long."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Restore log levels after each test."""
    with restored_log_levels():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(request: pytest.FixtureRequest) -> Iterator[object]:
    """Restore log levels after the set-up of shared fixtures."""
    if request.scope == "function":
        return (yield)
    with restored_log_levels():
        return (yield)


@pytest.fixture(scope="session", autouse=True)
def _checkout() -> Iterator[None]:
    """Nothing may be left in the root of the repository but caches."""
    before = {*os.listdir(ROOT)}
    yield
    left = {name for name in os.listdir(ROOT) if not name.startswith(".")} - before
    assert not left, "tests write into the checkout"


@pytest.fixture(scope="session")
def released_bert() -> Path:
    """A released BERT, a directory of transformers and sentence-transformers."""
    folder = ROOT / ".released/all-MiniLM-L6-v2"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there: bash scripts/released_model.sh")
    return folder


@pytest.fixture(scope="session")
def toy_masked_lm_data(tmp_path_factory) -> Path:
    """Data for the task `masked_lm`."""
    return toy_data.write_masked_lm(tmp_path_factory.mktemp("masked_lm"))


@pytest.fixture(scope="session")
def toy_translation_data(tmp_path_factory) -> Path:
    """Data for the task `translation`, en to de."""
    return toy_data.write_translation(tmp_path_factory.mktemp("translation"))


@pytest.fixture(scope="session")
def toy_sentence_data(tmp_path_factory) -> dict[str, Path]:
    """Data for `sentence_prediction`: "single", "pairs", "mnli" (3 classes), "regression"."""
    kinds = {
        "single": {},
        "pairs": {"pairs": True},
        "mnli": {"pairs": True, "classes": 3, "splits": ("train", "valid", "valid1")},
        "regression": {"pairs": True, "classes": 4, "targets": 1},
    }
    return {
        kind: toy_data.write_sentences(tmp_path_factory.mktemp(kind), **options)
        for kind, options in kinds.items()
    }


@pytest.fixture(scope="session")
def toy_checkpoint(toy_masked_lm_data, tmp_path_factory) -> Path:
    """A masked language model after six updates; tests only read it."""
    return fairseq_commands.pretrain(toy_masked_lm_data, tmp_path_factory.mktemp("masked"))


@pytest.fixture(scope="session")
def toy_language_model(toy_masked_lm_data, tmp_path_factory) -> Path:
    """A causal language model after four updates; tests only read it."""
    return fairseq_commands.train_lm(toy_masked_lm_data, tmp_path_factory.mktemp("causal"))


@pytest.fixture
def in_quickstart(toy_masked_lm_data, toy_sentence_data, tmp_path, monkeypatch) -> Path:
    """The working folder, with toy models where the quickstart puts its own."""
    for name in ("tupe_r", "learned", "sentiment"):
        if name == "sentiment":
            data = toy_sentence_data["single"]
            trained = fairseq_commands.finetune(data, tmp_path / name, "--num-classes", 2)
        else:
            data = toy_masked_lm_data
            flags = ("--position-encoding", name, "--max-update", 1)
            flags += ("--tokens-per-sample", 32)
            trained = fairseq_commands.pretrain(data, tmp_path / name, *flags)
        model = tmp_path / ".quickstart/models" / name.replace("tupe_r", "pretrained")
        shutil.copytree(data, model)
        shutil.copy(trained, model / "model.pt")
        toy_data.write_sentencepiece(model)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def forking_path(tmp_path_factory) -> Iterator[str]:
    """A PATH for shell scripts; see `processes.forking_path`."""
    with processes.forking_path(tmp_path_factory.mktemp("bin")) as path:
        yield path


@pytest.fixture
def forking_python(forking_path: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A stand-in for Python, also for programs that the programs of a test start."""
    python = shutil.which("python", path=forking_path)
    monkeypatch.setenv(processes.PYTHON, python)
    return python


@pytest.fixture(scope="session")
def bash(forking_path: str) -> Callable[..., CompletedProcess]:
    """Run a shell script with these arguments, on CPUs."""
    own = {"PATH": forking_path, "PYTHONPATH": str(ROOT)}
    own |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}

    def run(script: Path, *words: object) -> CompletedProcess:
        command = ["bash", script, *map(str, words)]
        return subprocess.run(command, env=os.environ | own, capture_output=True, text=True)

    return run


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """torch operations in place of the C kernels, as in a program with TUPE_FAIRSEQ_NATIVE=0."""
    with monkeypatch.context() as patch:
        patch.setenv("TUPE_FAIRSEQ_NATIVE", "0")
        native.kernels.cache_clear()
        yield
    native.kernels.cache_clear()


@pytest.fixture(scope="session")
def kernels_of_triton() -> Iterator[str]:
    """The type of the device that they run on."""
    if triton_interpreter.MISSING:
        pytest.skip("triton is not installed")
    with pytest.MonkeyPatch.context() as patch:
        if triton_interpreter.DEVICE == "cpu":
            triton_interpreter.repair_bf16(patch)
        yield triton_interpreter.DEVICE


@pytest.fixture(params=["native", "torch"])
def way(request: pytest.FixtureRequest) -> str:
    """The C kernels, and the torch operations that replace them."""
    if request.param == "torch":
        request.getfixturevalue("without_kernels")
    elif native.kernels() is None:
        pytest.skip("no C compiler")
    return request.param
