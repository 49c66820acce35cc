"""Code blocks and commands of a page in Markdown."""

import re
import shlex
from pathlib import Path

from tests import ROOT


def blocks(page: Path, language: str = "bash") -> list[str]:
    """The code blocks of a language."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def commands(page: Path, program: str | None = None) -> list[list[str]]:
    """The words of each command, or of those of one program, in the blocks of bash."""
    lines = "\n".join(blocks(page)).replace("\\\n", " ").replace("$(pwd)", str(ROOT))
    words = (shlex.split(line, comments=True) for line in lines.splitlines())
    return [command for command in words if command and program in (None, command[0])]
