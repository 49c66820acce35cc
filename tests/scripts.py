"""The root of the repository, below which the scripts under examples/ and scripts/ are."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
