"""BLEU and chrF of a model, and the table of all models."""

import re
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from sacrebleu.metrics import BLEU, CHRF

from examples.shared import markdown
from examples.shared.markdown import NOT_RUN, spread
from examples.study.measures import difference

BASELINE = "stock"
COLUMNS = ("encoding", "seeds", "BLEU", "chrF", "difference", "training speed", "generation speed")
HYPOTHESIS = re.compile(r"D-(\d+)\t[^\t]*\t(.*)")


def hypotheses(generated: str) -> list[str]:
    """The translations in the output of fairseq-generate, in the order of the sentences."""
    found = {}
    for line in generated.split("\n"):
        if match := HYPOTHESIS.fullmatch(line):
            found[int(match[1])] = match[2]
    return [found[i] for i in sorted(found)]


def score(translations: list[str], references: list[str]) -> dict[str, Any]:
    """BLEU and chrF, equal to `sacrebleu REFERENCES -i TRANSLATIONS -m bleu chrf`."""
    found: dict[str, Any] = {}
    for name, metric in (("bleu", BLEU()), ("chrf", CHRF())):
        found[name] = metric.corpus_score(translations, [references]).score
        found[f"{name}_signature"] = str(metric.get_signature())
    return found


def speed(log: list[tuple[str, Any]], tokens_per_update: float = 1.0) -> float | None:
    """Tokens per second by the entries `clock` of a log, or None if it has none.

    Args:
        log: what `read_log` returns.
        tokens_per_update: for clocks that count updates.
    """
    clocks = [entry for kind, entry in log if kind == "clock"]
    seconds = sum(clock["seconds"] for clock in clocks)
    tokens = sum(c.get("tokens", c.get("updates", 0) * tokens_per_update) for c in clocks)
    return tokens / seconds if seconds > 0 else None


def table(results: Mapping[str, Mapping[int, Mapping[str, Any]]], settings: str) -> str:
    """Markdown.

    Args:
        results: encoding -> seed -> result.json.
        settings: in a sentence.
    """
    clock = "wall-clock" if torch.cuda.is_available() else "processor"
    signatures = {
        result[key]
        for seeds in results.values()
        for result in seeds.values()
        for key in ("bleu_signature", "chrf_signature")
    }
    base = results.get(BASELINE, {})
    rows = []
    for name, seeds in results.items():
        cells = [_mean([result[key] for result in seeds.values()]) for key in ("bleu", "chrf")]
        apart = [seeds[seed]["bleu"] - base[seed]["bleu"] for seed in seeds if seed in base]
        told = difference(apart).written(1) if apart else NOT_RUN
        cells.append("–" if name == BASELINE else told)
        cells += [_relative(seeds, base, key) for key in ("training", "generation")]
        rows.append(
            [f"`{name}`", len(seeds), *cells] if seeds else [f"`{name}`", NOT_RUN, *" " * 5]
        )
    lines = [
        f"Multi30k en→de, test2016. {settings} Mean over seeds ± standard deviation. "
        f"`{BASELINE}`: fairseq's own `transformer`. Difference: of BLEU, paired by seed, with a "
        "95 % confidence interval; noise: the interval contains 0. Speed: tokens per second of "
        f"{clock} time divided by those of `{BASELINE}` with the same seed, median (range).",
        "",
        *(f"- `{signature}`" for signature in sorted(signatures)),
        "",
        *markdown.table(COLUMNS, rows),
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


def references(folder: Path) -> list[str]:
    """The human translations of the test set."""
    return (folder / "test.de").read_text(encoding="utf-8").removesuffix("\n").split("\n")
