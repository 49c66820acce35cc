"""Translations of one model: BLEU and chrF; of all models: the table."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from sacrebleu.metrics import BLEU, CHRF
from scipy.stats import t as student

BASELINE = "stock"
HYPOTHESIS = re.compile(r"D-(\d+)\t[^\t]*\t(.*)")
CLOCK = re.compile(r"\| clock \| (\{.*\})$")


def hypotheses(generated: str) -> list[str]:
    """The translations in what fairseq-generate has written, in the order of the sentences."""
    found = {}
    for line in generated.split("\n"):
        if match := HYPOTHESIS.fullmatch(line):
            found[int(match[1])] = match[2]
    return [found[i] for i in sorted(found)]


def clocks(text: str) -> list[dict[str, float]]:
    """What `timed_train.py` or `timed_generate.py` have told."""
    return [json.loads(match[1]) for line in text.split("\n") if (match := CLOCK.search(line))]


def score(translations: list[str], references: list[str]) -> dict[str, Any]:
    """BLEU and chrF, as `sacrebleu REFERENCES -i TRANSLATIONS -m bleu chrf` gives them."""
    found: dict[str, Any] = {}
    for name, metric in (("bleu", BLEU()), ("chrf", CHRF())):
        found[name] = metric.corpus_score(translations, [references]).score
        found[f"{name}_signature"] = str(metric.get_signature())
    return found


def speed(clocks: list[dict[str, float]], tokens_an_update: float = 1.0) -> float | None:
    """Tokens a second, or None where no clock was read."""
    seconds = sum(clock["seconds"] for clock in clocks)
    tokens = sum(c.get("tokens", c.get("updates", 0) * tokens_an_update) for c in clocks)
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
    lines = [
        f"Multi30k en→de, test2016. {settings} Mean over seeds ± standard deviation. "
        f"`{BASELINE}`: fairseq's own `transformer`. Difference: of BLEU, paired by seed; noise: "
        "its 95 % interval holds 0. Speed: tokens a second of "
        f"{clock} time over those of `{BASELINE}` with the same seed, median (range).",
        "",
        *(f"- `{signature}`" for signature in sorted(signatures)),
        "",
        "| encoding | seeds | BLEU | chrF | difference | training speed | generation speed |",
        "|---|---|---|---|---|---|---|",
    ]
    base = results.get(BASELINE, {})
    for name, seeds in results.items():
        if not seeds:
            lines.append(f"| `{name}` | not run | | | | | |")
            continue
        cells = [_spread([result[key] for result in seeds.values()]) for key in ("bleu", "chrf")]
        cells.append("–" if name == BASELINE else _difference(seeds, base))
        cells += [_relative(seeds, base, key) for key in ("training", "generation")]
        lines.append(f"| `{name}` | {len(seeds)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _spread(values: list[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.1f}"
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"


def _difference(seeds: Mapping[int, Any], base: Mapping[int, Any]) -> str:
    found = [seeds[seed]["bleu"] - base[seed]["bleu"] for seed in seeds if seed in base]
    if not found:
        return "not run"
    mean = statistics.mean(found)
    if len(found) == 1:
        return f"{mean:+.1f} (one seed)"
    reach = student.ppf(0.975, len(found) - 1) * statistics.stdev(found) / math.sqrt(len(found))
    return f"{mean:+.1f}{' (noise)' if abs(mean) <= reach else ''}"


def _relative(seeds: Mapping[int, Any], base: Mapping[int, Any], key: str) -> str:
    ratios = sorted(
        seeds[seed][key] / base[seed][key]
        for seed in seeds
        if seed in base and seeds[seed][key] and base[seed][key]
    )
    if not ratios:
        return "not run"
    return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}–{ratios[-1]:.2f})"


def references(folder: Path) -> list[str]:
    """The human translations of the test set."""
    return (folder / "test.de").read_text(encoding="utf-8").removesuffix("\n").split("\n")
