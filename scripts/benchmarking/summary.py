"""The results of benchmark_serving.py as a page in Markdown."""

import statistics
from typing import Any

from .rounds import Row, table

PRECISIONS = ("fp32", "bf16", "int8")
#: What to call for each of our ways.
CALLS = {"ours": "`optimize`", "ours-onnx": '`engine="onnxruntime"`'}
Tables = dict[str, dict[str, Any]]


def page(models: dict[str, Tables]) -> str:
    """A table of what to call, and one of our times over those of the best rivals, then all."""
    parts = [
        "# What to call, and its time over that of transformers in fp32 (cosine to it)",
        lines(["model", "texts", "threads", "batch", *PRECISIONS], models, _call),
        "# Our best over the best rival of the same precision, with quartiles",
        lines(["model", "texts", "threads", "batch", *PRECISIONS], models, _rival),
    ]
    for model, tables in models.items():
        for title, found in tables.items():
            if "rows" in found:
                missing = [f"missing: {n}: {why}" for n, why in found["missing"].items()]
                parts += [f"# {model}: {title}", marked(table(found["rows"])), *missing]
            else:
                scores = [[name, f"{score:.2f}"] for name, score in found["scores"].items()]
                parts += [f"# {model}: {title}", marked([["", title], *scores])]
    return "\n\n".join(parts) + "\n"


def lines(heads: list[str], models: dict[str, Tables], cell: Any) -> str:
    """A row for each table of each model."""
    rows = [heads]
    for model, tables in models.items():
        for found in tables.values():
            if "rows" in found:
                length = str(found["length"] or found["settings"]["texts"])
                sizes = [length, str(found["threads"]), str(found["batch"])]
                best = (fastest(found["rows"], precision) for precision in PRECISIONS)
                rows.append([model, *sizes, *(cell(row) if row else "" for row in best)])
    return marked(rows)


def fastest(rows: list[Row], precision: str) -> Row | None:
    """Our fastest way of a precision."""
    ours = [row for row in rows if row["is_ours"] and row["precision"] == precision]
    return min(ours, key=lambda row: statistics.median(row["seconds"]), default=None)


def _call(row: Row) -> str:
    ratio = row["quartiles_of_ratios"]["transformers"][1]
    return (
        f"{CALLS[row['name'].rpartition('-')[0]]}: {ratio:.2f} ({row['cosines']['source'][0]:.4f})"
    )


def _rival(row: Row) -> str:
    low, middle, high = row["quartiles_of_ratios"].get("best", [float("nan")] * 3)
    return f"{middle:.2f} ({low:.2f}-{high:.2f}), {row['best_rival']}"


def marked(rows: list[list[str]]) -> str:
    """Rows as a table in Markdown, after a row of headings."""
    first, *others = ("| " + " | ".join(row) + " |" for row in rows)
    return "\n".join([first, "|---" * len(rows[0]) + "|", *others])
