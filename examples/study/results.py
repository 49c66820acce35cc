"""Losses and scores in the directory of study.py, by model and seed."""

import argparse
from statistics import median

from examples.glue import collect
from examples.glue.readers import read_split
from examples.glue.results import read_results
from examples.glue.tasks import TASKS
from examples.study.comparison import summarise


class Results:
    """The results in the directory of the study.

    Attributes:
        pretraining: model -> seed -> result of comparison.summarise, for all planned runs.
        finetuning: lines of the sweeps, where `model` is without the seed `pretrained`.
    """

    def __init__(self, arguments: argparse.Namespace):
        self.arguments, self.plan, out = arguments, arguments.plan, arguments.out
        self.pretraining = {
            model: {
                seed: summarise(out / f"pretraining/{model}/{seed}") for seed in arguments.seeds
            }
            for model in arguments.models
        }
        self.finetuning = []
        for task in arguments.tasks:
            for line in read_results(out / "glue" / task / "results.jsonl"):
                model, _, seed = line["model"].rpartition("-")
                if model in arguments.models and int(seed) in arguments.seeds:
                    self.finetuning.append(line | {"model": model, "pretrained": int(seed)})

    def curves(self, model: str) -> dict[int, dict[int, float]]:
        """Losses by update, by seed, of the completed runs."""
        runs = self.pretraining.get(model, {}).items()
        return {s: run["losses"] for s, run in runs if self.plan.updates in run["losses"]}

    def scores(self, model: str, task: str) -> dict[int, float]:
        """Scores by seed of pre-training: medians of the fine-tunings with the best rate."""
        lines = [
            line for line in self.finetuning if (line["model"], line["task"]) == (model, task)
        ]
        if not lines:
            return {}
        best = collect.best_of(collect.by_rate(lines)[model, task]).rate
        seeds = sorted({line["pretrained"] for line in lines if line["rate"] == best})
        return {
            seed: median(
                line["score"]
                for line in lines
                if (line["pretrained"], line["rate"]) == (seed, best)
            )
            for seed in seeds
        }

    def ran(self) -> list[str]:
        """The tasks with results."""
        found = {line["task"] for line in self.finetuning}
        return [task for task in self.arguments.tasks if task in found]

    def labels(self, task: str) -> tuple[list[str], list[str]]:
        """Labels of the training and validation examples in the GLUE download."""
        splits = (split for split in TASKS[task].splits if split.name in ("train", "valid"))
        read = (read_split(self.arguments.glue, TASKS[task], split) for split in splits)
        train, valid = ([example.label for example in part.examples] for part in read)
        return train, valid
