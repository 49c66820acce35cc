"""The YAML files under examples/, and what fairseq-hydra-train makes of them, in process."""

import copy
import functools
import re
import shlex
import sys
from pathlib import Path
from unittest import mock

import torch
from fairseq import tasks
from fairseq.dataclass.initialize import add_defaults, hydra_init
from fairseq.dataclass.utils import omegaconf_no_object_check
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from tests import ROOT, processes, toy_data

try:
    from hydra import compose, initialize_config_dir
except ImportError:  # hydra 1.0, which fairseq 0.12.2 asks for
    from hydra.experimental import compose, initialize_config_dir

PRETRAINING = ROOT / "examples/pretraining/config"
GLUE = ROOT / "examples/glue/config"
FILES = sorted((ROOT / "examples").rglob("*.yaml"))
#: Files to be named by --config-name.
MAIN = [path for path in FILES if path.parent.name == "config"]
#: What the files of one folder share, included by their defaults lists.
SHARED = [path for path in FILES if path.parent.name == "recipe"]
#: Files that say where jobs run, added by +slurm=NAME.
SLURM = [path for path in FILES if path.parent.name == "slurm"]

#: For pytest's filterwarnings: what hydra says about fairseq's way of calling it.
QUIET = (
    "ignore:(?s).*is validated against ConfigStore schema",
    "ignore:(?s).*version_base parameter is not specified",
)


def relative(path: Path) -> str:
    """A file's name for test ids."""
    return str(path.relative_to(ROOT))


def composed(path: Path, *overrides: str):
    """The configuration that training gets for a file and overrides."""
    return copy.deepcopy(_composed(path, *overrides))


@functools.cache
def _composed(path: Path, *overrides: str):
    cfg = _read(path, *overrides)
    # From here on as fairseq_cli.hydra_train._hydra_main does.
    add_defaults(cfg)
    with omegaconf_no_object_check():
        cfg = OmegaConf.create(OmegaConf.to_container(cfg, resolve=True, enum_to_str=True))
    OmegaConf.set_struct(cfg, True)
    return cfg


def composed_job(path: Path, *overrides: str):
    """A file's configuration with hydra's own settings in it, as its launcher gets it."""
    return _read(path, *overrides, return_hydra_config=True)


def _read(path: Path, *overrides: str, **how: bool):
    GlobalHydra.instance().clear()
    hydra_init(path.stem)
    with initialize_config_dir(str(path.parent)):
        return compose(path.stem, overrides=list(overrides), **how)


def build(cfg):
    """The model of a configuration, built by its task, with toy dictionaries and without data."""
    words = toy_data.word_dictionary()
    dictionaries = {"masked_lm": (words,), "sentence_prediction": (words, words)}
    name = cfg.task._name
    task = tasks.TASK_REGISTRY[name](cfg.task, *dictionaries[name])
    # fairseq initialises by way of the CPU, where tensors without data cannot go.
    with torch.device("meta"), mock.patch.object(torch.Tensor, "cpu", lambda tensor: tensor):
        return task.build_model(cfg.model)


def launch_command(path: Path, **replacements: object) -> list[str]:
    """The command in the header of a file, as from the root of the repository.

    Args:
        path: the file.
        **replacements: arguments by their last name (data, user_dir, dir), with other values.
    """
    header = path.read_text().partition("\n\n")[0].replace("\n#", "\n")
    command = re.search(r"fairseq-hydra-train(?:.*\\\n)*.*", header)[0]
    words = shlex.split(command.replace("\\\n", " ").replace("$(pwd)", str(ROOT)))
    for name, value in replacements.items():
        words = [re.sub(rf"(\.{name})=.*", rf"\1={value}", word) for word in words]
    return words


def commanded(path: Path):
    """The configuration of the command in a file's header."""
    _, where, folder, which, name, *overrides = launch_command(path)
    assert (where, which) == ("--config-dir", "--config-name")
    assert (ROOT / folder, name) == (path.parent, path.stem)
    return composed(path, *overrides)


#: Without worker processes, whose end a test would wait for.
ON_CPU = ("common.cpu=true", "common.fp16=false", "dataset.num_workers=0")


def run_command(path: Path, *overrides: str, **replacements: object):
    program, *words = launch_command(path, **replacements)
    return processes.run(Path(sys.executable).with_name(program), *words, *ON_CPU, *overrides)
