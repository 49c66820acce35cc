"""Draw what a trained model has learned about positions: one heat map per head.

    python scripts/plot_positional_correlations.py CHECKPOINT_DIR --out FILE.png

CHECKPOINT_DIR is what `TupeRobertaModel.from_pretrained` takes: a folder with a checkpoint and
its dictionary. The command is written below the figure and into the file's metadata.
"""

from __future__ import annotations

import argparse
import logging
import shlex
import sys
import warnings
from pathlib import Path

from tupe_fairseq import TupeRobertaModel, UsageError
from tupe_fairseq.plots import draw_positional_correlations, save_png

#: Positions shown unless told otherwise; of more, a figure shows no single one.
LENGTH = 128


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint_dir", type=Path, help="folder of the checkpoint")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.png")
    parser.add_argument(
        "--length", type=int, metavar="N", help=f"positions shown (default: at most {LENGTH})"
    )
    parser.add_argument("--checkpoint-file", metavar="NAME", help="default: model.pt, ...")
    return parser.parse_args(argv)


def draw(args: argparse.Namespace, command: str) -> None:
    """Load the model, draw, write.

    Raises:
        UsageError: no model there, one without positional correlations, or an `--out` that cannot
            be written.
    """
    if not args.out.absolute().parent.is_dir():
        raise UsageError(f"--out is {str(args.out)!r}, but there is no such folder.")
    roberta = TupeRobertaModel.from_pretrained(args.checkpoint_dir, args.checkpoint_file)
    model = roberta.model.args
    length = min(LENGTH, model.max_positions) if args.length is None else args.length
    correlations = roberta.positional_correlations(length)
    name = args.checkpoint_dir.resolve().name
    title = f"Positional correlations of {name} ({model.position_encoding}, {length} positions)"
    save_png(draw_positional_correlations(correlations, title, command), args.out, command)


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status; a mistake of the user's is told in one line."""
    args = parse_arguments(argv)
    words = sys.argv[1:] if argv is None else argv
    # The file's own name, since the file may be moved when it is complete.
    words = [args.out.name if word == str(args.out) else word for word in words]
    command = shlex.join(["python", "scripts/plot_positional_correlations.py", *words])
    # fairseq turns every library's debugging output on, and its ways with hydra make that warn.
    logging.getLogger().setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="hydra|fairseq")
    try:
        draw(args, command)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
