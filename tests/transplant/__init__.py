"""Transplants inside any model, and the text of all tests of transplants."""

import random
from pathlib import Path

from tests.examples.test_serving import WORDS


def write_lines(file: Path) -> Path:
    """1,100 lines of two to 30 words."""
    draw = random.Random(0)
    lines = [" ".join(draw.choices(WORDS, k=draw.randint(2, 30))) for _ in range(1100)]
    file.write_text("\n".join(lines))
    return file
