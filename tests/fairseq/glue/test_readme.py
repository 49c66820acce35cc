"""The README of examples/glue: its commands are understood."""

import pytest

from examples.glue import predict, sweep
from tests.fairseq.glue.samples import GLUE
from tests.pages import commands

README = GLUE / "README.md"
COMMANDS = commands(README)


@pytest.mark.parametrize(
    ("name", "parse"), [("sweep", sweep.parse), ("predict", predict.arguments)]
)
def test_python_commands_are_understood(name, parse):
    (words,) = (words for words in COMMANDS if words[2] == f"examples.glue.{name}")
    assert str(parse(words[3:]).data) == "glue"
