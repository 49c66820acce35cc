"""The benchmark at one glance: the final loss of each encoding, for readers new to it.

python -m examples.study.benchmark_overview examples/study/benchmark
"""

import argparse
from pathlib import Path

from examples.shared.panels import panels
from examples.shared.results import read_results
from examples.study.benchmark_results import Finals, by_loss, finals
from scripts.drawing.plots import save_png

#: Said beside the names; the other names are known, or are what they are called.
NOTES = {"learned": "as in BERT and RoBERTa", "none": "no positions", "deberta": "as in DeBERTa"}


def draw_overview(found: Finals, out: Path, command: str) -> None:
    """Mean final losses, the lowest at the top, with the seeds' range."""
    ranked = by_loss(found)
    figure, (axes,) = panels(7.5, 0.3 * len(ranked) + 1.2)
    names = []
    for i, (name, own) in enumerate(ranked.items()):
        color = "C1" if name.startswith("tupe") else "C0"
        losses = own.losses.values()
        axes.plot([min(losses), max(losses)], [-i, -i], color=color, linewidth=2)
        axes.plot(own.loss, -i, "o", color=color)
        axes.annotate(
            f"{own.loss:.2f}", (max(losses), -i), (8, 0), textcoords="offset points", va="center"
        )
        plain = name.replace("+", ", ")
        names.append(f"{plain} ({NOTES[name]})" if name in NOTES else plain)
    axes.set_yticks(range(0, -len(names), -1), names)
    axes.set_title("One small model, one text, ten position encodings, three seeds", fontsize=11)
    axes.set_xlabel("loss in bits, mean and range of the seeds; lower is better")
    axes.margins(x=0.12)
    save_png(figure, out, command)


def main() -> None:
    """Draw it from results.json of a benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="with results.json")
    parser.add_argument("--size", default="2x128")
    args = parser.parse_args()
    found = finals(read_results(args.folder), args.size)
    command = f"python -m examples.study.benchmark_overview {args.folder}"
    draw_overview(found, args.folder / "overview.png", command)


if __name__ == "__main__":
    main()
