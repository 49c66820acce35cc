"""Where the scripts under examples/ and scripts/ are."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
