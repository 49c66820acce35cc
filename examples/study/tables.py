"""The tables of the study, as Markdown: pre-training and GLUE."""

from collections.abc import Iterable
from statistics import mean, median
from typing import Any

from examples.glue import collect
from examples.glue.tasks import TASKS
from examples.shared.markdown import NOT_RUN, spread, table
from examples.shared.results import Results, missing, rows
from examples.study.measures import Curve, difference, fraction, standard_error
from examples.study.plan import BASELINE, MODELS
from examples.study.training import losses_of

Lines = list[str]


def title(model: str) -> str:
    """A model's name in the tables."""
    return f"{MODELS[model][0]} (`{model}`)"


def curves(results: Results, model: str) -> dict[int, Curve]:
    """Losses by update, by seed, of the completed pre-trainings."""
    found = rows(results, part="pre-training", model=model)
    return {row["seed"]: losses_of(row) for row in found}


def finetunings(results: Results) -> list[dict[str, Any]]:
    """All results of fine-tuning, in the order of the models."""
    names = list(MODELS)
    found = [row for row in rows(results) if "rate" in row]
    return sorted(found, key=lambda row: names.index(row["model"]))


def scores(results: Results, model: str, task: str) -> dict[int, float]:
    """Scores by seed of pre-training: medians of the fine-tunings with the best rate."""
    lines = [row for row in rows(results, model=model, task=task) if "rate" in row]
    if not lines:
        return {}
    best = collect.best_of(collect.by_rate(lines)[model, task]).rate
    found: dict[int, list[float]] = {}
    for line in lines:
        if line["rate"] == best:
            found.setdefault(line["pretrained"], []).append(line["score"])
    return {seed: median(found[seed]) for seed in sorted(found)}


def pretraining_rows(results: Results) -> Iterable[Lines]:
    """Model, parameters, loss, its difference from BERT-A's, fraction of updates, speed."""
    base, last = curves(results, BASELINE), results["plan"]["updates"]
    for model in MODELS:
        done = rows(results, part="pre-training", model=model)
        planned = len(done) + len(missing(results, part="pre-training", model=model))
        if not planned:
            continue
        own = curves(results, model)
        shared = sorted(own.keys() & base.keys())
        reached = [fraction(own[seed], base[seed]) for seed in shared]
        there = [100 * share for share in reached if share is not None]
        share = spread(there, "{:.0f} %") if there else NOT_RUN if not shared else "never"
        if there and len(there) < len(reached):
            share += f"; {len(reached) - len(there)} of {len(reached)} seeds never"
        apart = [own[seed][last] - base[seed][last] for seed in shared]
        steps = [1000 * row["seconds"] for row in done if row["seconds"]]
        yield [
            title(model),
            f"{done[0]['parameters']:,}" if done else NOT_RUN,
            spread([curve[last] for curve in own.values()], "{:.3f}"),
            "-" if model == BASELINE else difference(apart).written(3) if apart else NOT_RUN,
            share,
            f"{median(steps):.0f}" if steps else NOT_RUN,
            f"{len(own)} of {planned}",
        ]


def pretraining(results: Results, context_free: float) -> Lines:
    """Losses, and the updates that are needed for the loss of BERT-A."""
    plan = results["plan"]
    tokens = plan["updates"] * plan["batch_size"] * plan["tokens_per_sample"]
    return [
        "## Pre-training",
        "",
        f"{plan['arch']}, {plan['vocabulary']:,} symbols, {plan['updates']:,} updates of "
        f"{plan['batch_size']} × {plan['tokens_per_sample']} tokens ({tokens:,}), learning rate "
        f"{plan['lr']:g}. Loss: bits per masked token of held-out text after the last update, "
        "median over the seeds (lowest to highest); a model without context has at least "
        f"{context_free:.3f}. Difference: mean over the seeds of the loss minus BERT-A's of the "
        "same seed, with a 95 % confidence interval. Share of updates: fraction of all updates "
        "after which the loss has first reached BERT-A's final loss. Time: processor time per "
        "update, on a GPU wall-clock time.",
        "",
        *table(
            ["model", "parameters", "loss", "difference", "share of updates", "ms", "seeds"],
            pretraining_rows(results),
        ),
        "",
        "![Validation loss against updates](losses.png)",
        "",
    ]


def noise_rows(results: Results, data: dict[str, dict[str, Any]]) -> list[Lines]:
    """Differences from BERT-A, a row for each model."""
    found = []
    for model in dict.fromkeys(row["model"] for row in finetunings(results)):
        cells = []
        for task in data:
            mine, base = scores(results, model, task), scores(results, BASELINE, task)
            apart = [mine[seed] - base[seed] for seed in sorted(mine.keys() & base.keys())]
            if not apart or model == BASELINE:
                cells.append("-")
                continue
            error = error_of(data[task], [*mine.values(), *base.values()])
            # The same examples: at most √2 times, and less for similar models.
            cells.append(difference(apart, 2**0.5 * error).written(2))
        found.append([title(model), *cells])
    return found


def error_of(task: dict[str, Any], values: list[float]) -> float:
    """Standard error of the mean score, from the number of examples."""
    return standard_error(TASKS[task["task"]].metric, mean(values), task["examples"])


def against_nothing(results: Results, data: dict[str, dict[str, Any]]) -> list[Lines]:
    """For each task: score of a constant answer, and the models that are significantly better."""
    found = []
    for name, task in data.items():
        better = []
        for model in MODELS:
            values = list(scores(results, model, name).values())
            apart = [value - task["constant"] for value in values]
            if apart and (gain := difference(apart, error_of(task, values))).mean > 0:
                better += [] if gain.is_noise else [MODELS[model][0]]
        said = ", ".join(better) or "**none**"
        metric = f"{name} ({TASKS[name].metric})"
        found.append([metric, task["examples"], f"{task['constant']:.2f}", said])
    return found


def glue(results: Results) -> Lines:
    """The paper's table, differences with their noise, and comparison with a constant answer."""
    lines, found = ["## GLUE", ""], finetunings(results)
    if not found:
        return [*lines, "Not run.", ""]
    ran = {row["task"] for row in found}
    data = {row["task"]: row for row in rows(results, part="GLUE data") if row["task"] in ran}
    return [
        *lines,
        "Scores in percent of each run's best epoch on the validation set; each run fine-tunes a "
        "model of a different seed of pre-training. Bold: median for the best learning rate "
        "(rate: lowest to highest, runs). Examples are truncated to "
        f"{results['plan']['glue_tokens']} tokens.",
        "",
        collect.render([row | {"model": title(row["model"])} for row in found]),
        "",
        "Difference from BERT-A: mean over the seeds, each model with its best rate, and a 95 % "
        "confidence interval for two causes of noise: the seeds (Student's t) and the choice of "
        "the validation examples. Differences within it are marked as noise.",
        "",
        *table(["model", *data], noise_rows(results, data)),
        "",
        "Significantly better than the same answer to all examples, by the same measure of noise:",
        "",
        *table(
            ["task", "validation examples", "constant answer", "better"],
            against_nothing(results, data),
        ),
        "",
    ]
