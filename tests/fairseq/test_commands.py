"""Which fairseq command runs, what only commands install, and how they end."""

import sys

import pytest

from tests import processes
from tupe_fairseq.base import errors
from tupe_fairseq.fairseq import commands

#: Prints what an import changes in the process beyond entries in registries.
SNAPSHOT = """
import json, logging, os, signal, sys, threading, types, warnings
import fairseq.criterions, fairseq.hub_utils, fairseq.models.roberta, fairseq.models.transformer_lm
import fairseq.tasks, numpy, torch
# scipy 1.15, the last for Python 3.10, adds filters of warnings by itself.
import scipy.stats

def contents(thing):
    code = (types.FunctionType, types.BuiltinFunctionType, type, staticmethod, classmethod)
    return {name: id(value) for name, value in vars(thing).items() if isinstance(value, code)}

watched = [m for name, m in sys.modules.items() if name.split(".")[0] in ("fairseq", "numpy")]
watched += [torch, torch.nn.functional, torch.nn.Module, torch.Tensor, torch.serialization]
watched += [c for m in watched for c in vars(m).values()
            if isinstance(c, type) and c.__module__.startswith("fairseq")]

def state():
    return {
        "safe globals": sorted(map(str, torch.serialization.get_safe_globals())),
        "logging": [str(logging.root.level), *map(str, logging.root.handlers)],
        "loggers": {n: getattr(g, "level", 0) for n, g in logging.root.manager.loggerDict.items()
                    if n in before_loggers},
        "warnings": [str(each) for each in warnings.filters],
        "modules": "numpy.compat" in sys.modules,
        "torch": [str(torch.get_default_dtype()), torch.get_num_threads(),
                  torch.get_num_interop_threads(), torch.is_grad_enabled(),
                  torch.get_float32_matmul_precision(), torch.get_deterministic_debug_mode()],
        "generators": [str(torch.get_rng_state().tolist()), str(numpy.random.get_state())],
        "environment": dict(os.environ), "words": [*sys.argv], "path": [*sys.path],
        "hooks": [str(sys.excepthook), str(threading.excepthook), str(signal.getsignal(2))],
        "contents": [(str(thing), contents(thing)) for thing in watched],
    }

def reduced(old, new):
    # Lazily imported parts of torch may add names; none that was there may be replaced.
    return [(name, {k: v for k, v in own.items() if k in dict(old)[name]}) for name, own in new]

before_loggers = set(logging.root.manager.loggerDict)
before = state()
import tupe_fairseq
after = state()
after["contents"] = reduced(before["contents"], after["contents"])
print(json.dumps([key for key in before if before[key] != after[key]]))
"""


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch):
    monkeypatch.delenv(commands.COMMAND, raising=False)
    monkeypatch.delenv(errors.TRACEBACK, raising=False)


@pytest.mark.parametrize(
    ("program", "command"),
    [
        ("/usr/bin/fairseq-train", "train"),
        ("fairseq-hydra-train", "train"),
        ("/x/fairseq_cli/train.py", "train"),
        ("/x/fairseq_cli/hydra_train.py", "train"),
        ("fairseq-generate", "generate"),
        ("/x/fairseq_cli/eval_lm.py", "eval-lm"),
        ("/x/submitit/core/_submit.py", "train"),
        ("/x/train.py", None),
        ("/usr/bin/pytest", None),
        ("", None),
    ],
)
def test_the_program_is_the_fallback(program, command, monkeypatch):
    monkeypatch.setattr(sys, "argv", [program])
    assert commands.current() == command
    with commands.running("validate"):
        assert commands.current() == "validate"
        with commands.running("train"):
            assert commands.current() == "train"
        assert commands.current() == "validate"
    assert commands.current() == command


def test_importing_the_package_changes_nothing_else(tmp_path):
    (tmp_path / "program.py").write_text(SNAPSHOT)
    ended = processes.run(tmp_path / "program.py")
    assert ended.stdout == "[]\n", ended.stderr


def test_a_command_installs_what_it_needs(tmp_path):
    """Also in the processes that it starts, whose program has another name."""
    (tmp_path / "program.py").write_text(
        "import sys, torch, tupe_fairseq;"
        "print(len(torch.serialization.get_safe_globals()) > 9, 'numpy.compat' in sys.modules)"
    )
    ended = processes.run(tmp_path / "program.py", **{commands.COMMAND: "train"})
    assert ended.stdout == "True True\n", ended.stderr


@commands.ends_commands_in_one_line
def fail():
    raise errors.DataError("train.bin\nis cut off")


@pytest.mark.parametrize("traceback", ["", "0", "1"])
def test_commands_end_in_one_line(monkeypatch, capsys, traceback):
    monkeypatch.setenv(errors.TRACEBACK, traceback)
    with commands.running("train"), pytest.raises(SystemExit) as ended:
        fail()
    assert ended.value.code == r"error: train.bin\nis cut off"
    told = capsys.readouterr().err
    assert ("Traceback" in told and "DataError" in told) == (traceback == "1")


def test_python_gets_the_error_itself():
    with pytest.raises(errors.DataError):
        fail()
