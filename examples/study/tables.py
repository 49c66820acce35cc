"""The tables of the study, as Markdown: pre-training and GLUE."""

from collections.abc import Iterable
from statistics import mean, median

import torch

from examples.shared.markdown import NOT_RUN, spread, table
from examples.study.measures import difference, fraction, standard_error, without_model
from examples.study.plan import BASELINE, MODELS
from examples.study.results import TASKS, Results, collect

Lines = list[str]
#: Labels of a task's training and validation examples.
Labels = dict[str, tuple[list[str], list[str]]]


def title(model: str) -> str:
    """A model's name in the tables."""
    return f"{MODELS[model][0]} (`{model}`)"


def pretraining_rows(results: Results) -> Iterable[Lines]:
    """Model, parameters, loss, its difference from BERT-A's, fraction of updates, speed."""
    base = results.curves(BASELINE)
    last = results.plan.updates
    for model, runs in results.pretraining.items():
        curves = results.curves(model)
        shared = sorted(curves.keys() & base.keys())
        sizes = {run["parameters"] for run in runs.values() if run["parameters"]}
        reached = [fraction(curves[seed], base[seed]) for seed in shared]
        there = [100 * share for share in reached if share is not None]
        share = spread(there, "{:.0f} %") if there else NOT_RUN if not shared else "never"
        if there and len(there) < len(reached):
            share += f"; {len(reached) - len(there)} of {len(reached)} seeds never"
        apart = [curves[seed][last] - base[seed][last] for seed in shared]
        steps = [1000 * s for run in runs.values() for s in run["seconds"].values()]
        yield [
            title(model),
            f"{min(sizes):,}" if sizes else NOT_RUN,
            spread([curve[last] for curve in curves.values()], "{:.3f}"),
            "-" if model == BASELINE else difference(apart).written(3) if apart else NOT_RUN,
            share,
            f"{median(steps):.0f}" if steps else NOT_RUN,
            f"{len(curves)} of {len(runs)}",
        ]


def pretraining(results: Results, unigram: float) -> Lines:
    """Losses, and the updates that are needed for the loss of BERT-A."""
    plan = results.plan
    clock = "wall-clock" if torch.cuda.is_available() else "processor"
    tokens = plan.updates * plan.batch_size * plan.tokens_per_sample
    return [
        "## Pre-training",
        "",
        f"{plan.arch}, {plan.vocabulary:,} symbols, {plan.updates:,} updates of {plan.batch_size} "
        f"× {plan.tokens_per_sample} tokens ({tokens:,}), "
        f"learning rate {plan.lr:g}. Loss: bits per masked token of held-out text after the last "
        f"update, median over the seeds (lowest to highest); word frequencies alone give "
        f"{unigram:.3f}. Difference: mean over the seeds of the loss minus BERT-A's of the same "
        "seed, with a 95 % confidence interval. Share of updates: fraction of all updates after "
        f"which the loss has first reached BERT-A's final loss. Time: {clock} time per update.",
        "",
        *table(
            ["model", "parameters", "loss", "difference", "share of updates", "ms", "seeds"],
            pretraining_rows(results),
        ),
        "",
        "![Validation loss against updates](losses.png)",
        "",
    ]


def noise_rows(results: Results, labels: Labels) -> list[Lines]:
    """Differences from BERT-A, a row for each model."""
    tasks = list(labels)
    rows = []
    for model in results.arguments.models:
        cells = []
        for task in tasks:
            mine, base = results.scores(model, task), results.scores(BASELINE, task)
            apart = [mine[seed] - base[seed] for seed in sorted(mine.keys() & base.keys())]
            if not apart or model == BASELINE:
                cells.append("-")
                continue
            error = error_of(task, [*mine.values(), *base.values()], labels)
            # The same examples: at most √2 times, and less for similar models.
            cells.append(difference(apart, 2**0.5 * error).written(2))
        rows.append([title(model), *cells])
    return rows


def error_of(task: str, scores: list[float], labels: Labels) -> float:
    """Standard error of the mean score, from the number of examples."""
    return standard_error(TASKS[task].metric, mean(scores), len(labels[task][1]))


def against_nothing(results: Results, labels: Labels) -> list[Lines]:
    """For each task: score of a constant answer, and the models that are significantly better."""
    rows = []
    for task, (train, valid) in labels.items():
        nothing = without_model(TASKS[task].metric, train, valid)
        better = []
        for model in results.arguments.models:
            scores = list(results.scores(model, task).values())
            apart = [score - nothing for score in scores]
            if apart and (found := difference(apart, error_of(task, scores, labels))).mean > 0:
                better += [] if found.is_noise else [MODELS[model][0]]
        metric = f"{task} ({TASKS[task].metric})"
        rows.append([metric, len(valid), f"{nothing:.2f}", ", ".join(better) or "**none**"])
    return rows


def glue(results: Results) -> Lines:
    """The paper's table, differences with their noise, and comparison with a constant answer."""
    lines = ["## GLUE", ""]
    if not results.finetuning:
        return [*lines, "Not run.", ""]
    labels = {task: results.labels(task) for task in results.ran()}
    in_order = sorted(results.finetuning, key=lambda line: list(MODELS).index(line["model"]))
    titled = [line | {"model": title(line["model"])} for line in in_order]
    return [
        *lines,
        "Scores in percent of each run's best epoch on the validation set; each run fine-tunes a "
        "model of a different seed of pre-training. Bold: median for the best learning rate "
        "(rate: lowest to highest, runs). Examples are truncated to "
        f"{results.plan.glue_tokens} tokens.",
        "",
        collect.render(titled),
        "",
        "Difference from BERT-A: mean over the seeds, each model with its best rate, and a 95 % "
        "confidence interval for two causes of noise: the seeds (Student's t) and the choice of "
        "the validation examples. Differences within it are marked as noise.",
        "",
        *table(["model", *labels], noise_rows(results, labels)),
        "",
        "Significantly better than the same answer to all examples, by the same measure of noise:",
        "",
        *table(
            ["task", "validation examples", "constant answer", "better"],
            against_nothing(results, labels),
        ),
        "",
    ]
