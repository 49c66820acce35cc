"""BLEU and chrF of a model, and the report of all models.

    python -m examples.translation.scores DIRECTORY

Reads DIRECTORY/results.json; writes report.md.
"""

import re
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sacrebleu.metrics import BLEU, CHRF

from examples.shared import markdown, script
from examples.shared.markdown import NOT_RUN, spread
from examples.shared.results import missing, read_results, rows, write_report
from examples.study.measures import difference
from tupe_fairseq.base.texts import read_lines

BASELINE = "stock"
COLUMNS = ("encoding", "seeds", "BLEU", "chrF", "difference", "training speed", "generation speed")
HYPOTHESIS = re.compile(r"^D-(\d+)\t[^\t\n]*\t(.*)$", re.MULTILINE)


def hypotheses(generated: str) -> list[str]:
    """The translations in the output of fairseq-generate, in the order of the sentences."""
    found = {int(number): text for number, text in HYPOTHESIS.findall(generated)}
    return [found[i] for i in sorted(found)]


def score(translations: list[str], references: list[str]) -> dict[str, Any]:
    """BLEU and chrF, equal to `sacrebleu REFERENCES -i TRANSLATIONS -m bleu chrf`."""
    found: dict[str, Any] = {}
    for name, metric in (("bleu", BLEU()), ("chrf", CHRF())):
        found[name] = metric.corpus_score(translations, [references]).score
        found[f"{name}_signature"] = str(metric.get_signature())
    return found


def speed(clocks: list[dict[str, float]], key: str, tokens: float = 1.0) -> float | None:
    """Tokens per second, or None without a clock.

    Args:
        clocks: entries `clock` of a log.
        key: "updates" or "tokens"; the clocks that count others are left out.
        tokens: of each that is counted.
    """
    own = [clock for clock in clocks if key in clock]
    seconds = sum(clock["seconds"] for clock in own)
    return tokens * sum(clock[key] for clock in own) / seconds if seconds > 0 else None


def report(out: Path) -> None:
    """Write the report of the results so far."""
    results = read_results(out)
    lines = ["# Translation", ""]
    for size, flags in results["plan"]["flags"].items():
        found: dict[str, dict[int, Any]] = {}
        for row in missing(results, part=size):
            found.setdefault(row["encoding"], {})
        for row in rows(results, part=size):
            found.setdefault(row["encoding"], {})[row["seed"]] = row
        if found:
            lines += [f"## {size}", "", table(found, f"{' '.join(flags)}."), ""]
    write_report(out, results, lines)


def table(results: Mapping[str, Mapping[int, Mapping[str, Any]]], settings: str) -> str:
    """Markdown.

    Args:
        results: encoding -> seed -> what `run.evaluate` returns.
        settings: in a sentence.
    """
    runs = [result for seeds in results.values() for result in seeds.values()]
    signatures = {run[key] for run in runs for key in ("bleu_signature", "chrf_signature")}
    base = results.get(BASELINE, {})
    cells_of_all = []
    for name, seeds in results.items():
        cells = [_mean([result[key] for result in seeds.values()]) for key in ("bleu", "chrf")]
        apart = [seeds[seed]["bleu"] - base[seed]["bleu"] for seed in seeds if seed in base]
        told = difference(apart).written(1) if apart else NOT_RUN
        cells.append("–" if name == BASELINE else told)
        cells += [_relative(seeds, base, key) for key in ("training", "generation")]
        told = [len(seeds), *cells] if seeds else [NOT_RUN, *" " * 5]
        cells_of_all.append([f"`{name}`", *told])
    lines = [
        f"Multi30k en→de, test2016. {settings} Mean over seeds ± standard deviation. "
        f"`{BASELINE}`: fairseq's own `transformer`. Difference: of BLEU, paired by seed, with a "
        "95 % confidence interval; noise: the interval contains 0. Speed: tokens per second of "
        "processor time (wall-clock time on a GPU) divided by those of "
        f"`{BASELINE}` with the same seed, median (range).",
        "",
        *(f"- `{signature}`" for signature in sorted(signatures)),
        "",
        *markdown.table(COLUMNS, cells_of_all),
    ]
    return "\n".join(lines) + "\n"


def _mean(values: list[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.1f}" if values else NOT_RUN
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"


def _relative(seeds: Mapping[int, Any], base: Mapping[int, Any], key: str) -> str:
    return spread(
        seeds[seed][key] / base[seed][key]
        for seed in seeds
        if seed in base and seeds[seed][key] and base[seed][key]
    )


def references(path: Path) -> list[str]:
    """The human translations of the test set."""
    return list(read_lines(path))


if __name__ == "__main__":
    script.run_report(report)
