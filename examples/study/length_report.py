"""The report of length.py.

    python -m examples.study.length_report DIRECTORY

Reads DIRECTORY/results.json and, if it is there, terms.json of length_terms.py; writes report.md
and its figures.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from examples.shared import script
from examples.shared.markdown import spread, table
from examples.shared.results import Results, missing, read_results, rows, write_report
from examples.study.length_figures import (
    BREAKS,
    HOLDS,
    Found,
    draw_growth,
    growth,
    verdict,
)
from examples.study.length_measures import FACTORS, KINDS, bands

#: The file of length_terms.py.
TERMS = "terms.json"


def losses_by_model(results: Results, part: str) -> Found:
    """Results of a part, the models that hold best first."""
    found: Found = defaultdict(dict)
    for row in rows(results, part=part):
        for way, measured in row["measured"].items():
            name = f"{row['encoding']}, {way}" if way else row["encoding"]
            found[name][row["seed"]] = measured
    return dict(sorted(found.items(), key=lambda item: growth(item[1])[FACTORS[-1]]))


def by_position(runs: dict[int, dict[str, Any]]) -> Iterator[str]:
    """Mean loss in each range of positions, in sequences of the longest length."""
    for values in zip(*(run["bands"] for run in runs.values()), strict=True):
        yield spread((value for value in values if value is not None), "{:.3f}")


def listed(names: list[str]) -> str:
    """Names in a sentence."""
    return ", ".join(f"`{name}`" for name in names) or "nothing"


def losses_part(part: str, found: Found, trained: int, planned: list[str]) -> list[str]:
    """Lines of the report on a kind of models."""
    kind = KINDS[part]
    unit, tokens = trained - kind.special, next(iter(found[next(iter(found))].values()))["tokens"]
    lengths = [f"{k * unit + kind.special:,} tokens" for k in FACTORS]

    def cells_of(key: str) -> Iterator[list[str]]:
        for name, runs in found.items():
            cells = [spread((r[key][str(k)] for r in runs.values()), "{:.3f}") for k in FACTORS]
            yield [f"`{name}`", *cells]

    changes = {name: growth(runs)[FACTORS[-1]] for name, runs in found.items()}
    verdicts = [[f"{each:+.3f}", verdict(each)] for each in changes.values()]
    ends = [f"{start:,} to {stop - 1:,}" for start, stop in bands(unit)]
    positions = ([f"`{name}`", *by_position(runs)] for name, runs in found.items())
    return [
        *(f"## {kind.title}", "", f"![Growth of the loss with the length]({part}.png)", ""),
        *("Blue: holds; grey: degrades; red: breaks; dashed: with an option after a comma.", ""),
        f"Trained at {trained} tokens. Loss in bits per token of the same "
        f"{tokens:,} held-out tokens at all lengths; median and range over "
        "seeds, or one seed. Growth: the last length minus the first, mean over seeds. A model "
        f"holds at a growth of at most {HOLDS} and breaks above {BREAKS}. Trained tables of "
        "positions are extended (`--extend-positions hierarchical`). A name after a comma is a "
        "`--rope-scaling` of the same checkpoint, without training, `toeplitz` "
        "(`--extend-positions toeplitz`), `log scaling` (`--log-scaling-floor`), or `window`: "
        f"`--attention-window {trained - 1}`, which hides keys at distances beyond the trained "
        f"ones ({trained - 2} with `toeplitz`). Planned and not run: "
        f"{listed(planned)}.",
        "",
        *table(
            ["encoding", *lengths, "growth", "verdict"],
            ([*row, *more] for row, more in zip(cells_of("mean"), verdicts, strict=True)),
        ),
        *("", f"### The last {unit} tokens of each block", ""),
        "The same tokens at the end of sequences of each length, so that only their context "
        "grows. In the table above, shorter sequences have more tokens with little context, which "
        "raises their loss (the early-token effect).",
        *("", *table(["encoding", *lengths], cells_of("last"))),
        *("", f"### By position of the text, in sequences of {lengths[-1]}", ""),
        *(*table(["encoding", *ends], positions), ""),
    ]


def terms_part(terms: dict[str, Any]) -> list[str]:
    """Lines of the report on what length_terms.py has measured."""
    models, unit = terms["models"], terms["length"] - KINDS["masked"].special
    ends = [f"{k * unit + 1:,} tokens" for k in (1, FACTORS[-1])]
    heads = range(max(len(model["explained"]) for model in models.values()))
    shares = ([name, *(f"{100 * s:.0f}" for s in m["explained"])] for name, m in models.items())
    rows = []
    for name, model in models.items():
        for way, losses in model["ways"].items():
            cells = (
                f"{losses[key][k]:.4f}"
                for key in ("mean", "last")
                for k in ("1", str(FACTORS[-1]))
            )
            rows.append([name, way, *cells])
    return [
        *("## What distance explains of TUPE's term", ""),
        "Share of the variance of each head's term over the pairs of trained positions, [CLS] "
        "left out, that their distance explains, in percent:",
        *("", *table(["model", *(f"head {h + 1}" for h in heads)], shares), ""),
        "Losses with `--extend-positions toeplitz`, in bits per token: by default, and with other "
        f"values of `--toeplitz-far` (default {unit // 2}) and `--toeplitz-slope` (default 1). "
        f"Last: the last {unit} tokens of each block.",
        "",
        *table(
            ["model", "way", *ends, *(f"last, {end}" for end in ends)],
            rows,
        ),
        "",
    ]


def report(out: Path) -> None:
    """Write the report of the results so far."""
    results = read_results(out)
    parts = {part: found for part in KINDS if (found := losses_by_model(results, part))}
    lengths, command = results["plan"]["trained"], results["command"]
    lines = ["# Longer texts than trained", ""]
    for part, found in parts.items():
        draw_growth(part, found, lengths[part], out / f"{part}.png", command)
        planned = [
            f"{each['encoding']} (seed {each['seed']})" for each in missing(results, part=part)
        ]
        lines += losses_part(part, found, lengths[part], planned)
    if (out / TERMS).exists():
        lines += terms_part(json.loads((out / TERMS).read_text()))
    write_report(out, results, lines)


if __name__ == "__main__":
    script.run_report(report)
