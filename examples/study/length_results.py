"""The results of length.py, and which models hold."""

import json
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

from examples.study.length_measures import FACTORS, KINDS

#: Bits by which the loss at the longest length may exceed that at the trained one: a model with at
#: most the first holds, with more than the second it breaks.
HOLDS, BREAKS = 0.05, 0.5
#: Results of a model by seed, by its name: an encoding, and perhaps a scaling or a window.
Found = dict[str, dict[int, dict[str, Any]]]
#: Results of the algorithmic tasks: lines of algorithmic.py by task and encoding.
Solved = dict[str, dict[str, list[dict[str, Any]]]]


def read_losses(folder: Path) -> Found:
    """All results below the folder of a part, the models that hold best first."""
    found: Found = defaultdict(dict)
    for path in sorted(folder.glob("*/*/*.json")):
        encoding, seed = path.parts[-3:-1]
        name = encoding if path.stem == "loss" else f"{encoding}, {path.stem}"
        found[name][int(seed)] = json.loads(path.read_text())
    return dict(sorted(found.items(), key=lambda item: growth(item[1])[FACTORS[-1]]))


def growth(runs: dict[int, dict[str, Any]]) -> dict[int, float]:
    """Loss at each factor minus that at the trained length, mean over seeds."""
    return {
        k: mean(run[str(k)]["mean"] - run["1"]["mean"] for run in runs.values()) for k in FACTORS
    }


def verdict(change: float) -> str:
    """What the growth at the longest length means."""
    return "holds" if change <= HOLDS else "breaks" if change > BREAKS else "degrades"


def any_run(found: Found) -> dict[str, Any]:
    """The results of one model."""
    return next(iter(next(iter(found.values())).values()))


def trained_length(part: str, found: Found) -> int:
    """Tokens of a sequence in training, with special ones."""
    return len(any_run(found)["1"]["by_position"]) + KINDS[part].special


def read_algorithmic(folder: Path) -> Solved:
    """All results of the algorithmic tasks, the highest score first."""
    texts = (path.read_text() for path in sorted(folder.glob("*.jsonl")))
    lines = [json.loads(line) for text in texts for line in text.splitlines()]
    found: Solved = {task: defaultdict(list) for task in sorted({line["task"] for line in lines})}
    for line in sorted(lines, key=lambda line: -line["score"]):
        found[line["task"]][line["encoding"]].append(line)
    return found
