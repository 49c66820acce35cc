"""The README of examples/glue: its commands are understood, and its Python runs."""

import re
from pathlib import Path

import pytest

from examples.glue import predict, sweep
from examples.glue.tasks import TASKS
from tests.glue.samples import GLUE
from tests.pages import commands

README = GLUE / "README.md"
COMMANDS = commands(README)


@pytest.mark.parametrize(
    ("name", "parse"), [("sweep", sweep.parse), ("predict", predict.arguments)]
)
def test_python_commands_are_understood(name, parse):
    (words,) = (words for words in COMMANDS if words[2] == f"examples.glue.{name}")
    assert str(parse(words[3:]).data) == "glue"


def test_shell_commands_name_tasks_there_are():
    folders = {word for words in COMMANDS for word in words if word.endswith("-bin")}
    assert folders == {"glue/RTE-bin", "glue/CoLA-bin", "glue-512/RTE-bin"}
    assert {Path(folder).name[:-4] for folder in folders} <= set(TASKS)
    options = re.findall(r"--[a-z-]+", " ".join(" ".join(words) for words in COMMANDS))
    text = (GLUE / "preprocess.py").read_text() + (GLUE / "sweep.py").read_text()
    text += (GLUE / "predict.py").read_text()
    assert all(f'"{option}"' in text for option in options)
