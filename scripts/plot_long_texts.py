"""Draw the results of `examples.transplant.long_texts`, and print their table.

python scripts/plot_long_texts.py RESULTS.json FIGURE.png
"""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

MEASURES = {
    "text": "text found, %",
    "behind": "other texts with a smaller cosine, %",
    "answer": "answer found in its text, %",
}
PLACES = (0.1, 0.5, 0.9)
#: The length of the texts in which places are compared.
LENGTH = 2048


def share(rows: list[dict[str, float]], measure: str, place: float | None = None) -> float:
    """The mean in percent, of all queries or of those whose answer stands there."""
    values = [row[measure] for row in rows if place in (None, row["place"])]
    return 100 * sum(values) / len(values)


def draw(found: dict[str, dict[str, list[dict[str, float]]]], out: Path) -> None:
    """Each measure by length, and answers by place in texts of `LENGTH`."""
    figure, grid = plt.subplots(2, 2, figsize=(10, 8.5), layout="constrained")
    *axes, by_place = grid.flat
    lengths = sorted({int(each) for rows in found.values() for each in rows})
    markers = "osD^vPX*<>hp"
    for (name, by_length), marker in zip(found.items(), markers, strict=False):
        own = sorted(by_length, key=int)
        style = {"marker": marker, "label": name, "alpha": 0.8}
        style["linestyle"] = "--" if name.startswith("source") else "-"
        for axis, measure in zip(axes, MEASURES, strict=True):
            axis.plot(list(map(int, own)), [share(by_length[n], measure) for n in own], **style)
        if rows := by_length.get(str(LENGTH)):
            by_place.plot(PLACES, [share(rows, "answer", place) for place in PLACES], **style)
    for axis, title in zip(axes, MEASURES.values(), strict=True):
        axis.set(xscale="log", xlabel="tokens of a text", title=title)
        axis.set_xticks(lengths, map(str, lengths), minor=False)
        axis.minorticks_off()
    title = f"answer found in a text of {LENGTH:,} tokens, %"
    by_place.set(xlabel="place of the answer in the text", title=title, xticks=PLACES)
    for axis in grid.flat:
        axis.set_ylim(-3, 103)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.savefig(out, dpi=110)


def main() -> None:
    """See the module's docstring."""
    source, out = map(Path, sys.argv[1:])
    found = json.loads(source.read_text(encoding="utf-8"))
    draw(found, out)
    print("| model | tokens | text | texts behind | answer | at 0.1 | at 0.5 | at 0.9 |")
    print("|---|---|---|---|---|---|---|---|")
    for name, by_length in found.items():
        for length, rows in sorted(by_length.items(), key=lambda item: int(item[0])):
            places = [share(rows, "answer", place) for place in PLACES]
            values = [share(rows, each) for each in MEASURES]
            cells = (f"{value:.0f} %" for value in (*values, *places))
            print(f"| {name} | {int(length):,} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
