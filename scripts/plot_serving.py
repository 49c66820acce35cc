"""Draw the time of our ways to serve a model relative to the best rival's.

    python scripts/plot_serving.py RESULTS.json --out FILE.png

RESULTS.json is that of benchmark_serving.py. A panel for each model, a row for each of its tables,
and in it a point for each precision: median and quartiles over the rounds of the time of our
fastest way over that of the fastest rival of the same precision in the same round. Points are
empty where our fastest way is a program in ONNX. The command is written into the file's metadata.
"""

import json
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarking import figures

from tupe_fairseq import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = {"fp32": "C0", "bf16": "C1", "int8": "C2"}
#: By title of a table and precision: our fastest row.
Tables = dict[str, dict[str, dict[str, Any]]]


def read(file: Path) -> dict[str, Tables]:
    """The tables of each model that have one of our ways and a rival.

    Raises:
        UsageError: the file is no such result, or no table is left.
    """
    found: dict[str, Tables] = {}
    try:
        models = json.loads(file.read_text(encoding="utf-8"))["models"]
        for model, tables in models.items():
            for title, table in tables.items():
                rows = [r for r in table.get("rows", ()) if r["is_ours"] and r["best_rival"]]
                # The last row of a precision stays: the fastest.
                rows.sort(key=lambda row: -statistics.median(row["seconds"]))
                if rows:
                    best = {row["precision"]: row for row in rows}
                    found.setdefault(model, {})[title] = best
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{str(file)!r} is no result of benchmark_serving.py: {error}.") from None
    if not found:
        raise UsageError(f"{str(file)!r} holds no time of ours beside a rival's.")
    return found


def draw(found: dict[str, Tables]) -> "Figure":
    """The figure."""
    titles = list(dict.fromkeys(title for tables in found.values() for title in tables))
    figure, panels = figures.panels(len(found), (2.6 + 3.2 * len(found), 1.3 + 0.4 * len(titles)))
    for axes, (model, tables) in zip(panels, found.items(), strict=True):
        for height, title in enumerate(titles):
            draw_table(axes, height, tables.get(title, {}))
        figures.finish(axes, model, "fastest rival")
    first = panels[0]
    figures.name_rows(first, titles)
    handles = [first.plot([], [], "o", color=c, label=name)[0] for name, c in COLORS.items()]
    figure.legend(handles=handles, loc="outside upper center", ncols=3, frameon=False)
    return figure


def draw_table(axes: Any, height: int, rows: dict[str, dict[str, Any]]) -> None:
    """A point for each precision, one above the other."""
    for offset, (precision, color) in zip((-0.2, 0, 0.2), COLORS.items(), strict=True):
        if precision in rows:
            row = rows[precision]
            face = "white" if "onnx" in row["name"] else color
            quartiles = row["quartiles_of_ratios"]["best"]
            style = {"color": color, "markerfacecolor": face}
            figures.ratio(axes, height + offset, quartiles, "o", **style)


def main(argv: list[str] | None = None) -> None:
    """See the module's docstring."""
    told = __doc__.splitlines()[0]
    figures.save("plot_serving.py", told, lambda file: draw(read(file)), argv)


if __name__ == "__main__":
    main()
