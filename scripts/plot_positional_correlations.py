"""Draw what a trained model has learned about positions: heat maps, query by key position.

    python scripts/plot_positional_correlations.py CHECKPOINT_DIR --out FILE.png

Of TUPE, T5 and ALiBi it draws what positions add to the scores, one map per head; of Shaw,
Transformer-XL and DeBERTa what a layer's positions add for an average word, or how strongly they
act on words at random; of RoPE how q · k falls with the distance; of encodings that enter the
input the cosine of the position vectors. The title tells which.

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
from tupe_fairseq.analysis import position_maps
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
    parser.add_argument("--layer", type=int, default=1, metavar="N", help="where layers differ")
    parser.add_argument("--checkpoint-file", metavar="NAME", help="default: model.pt, ...")
    return parser.parse_args(argv)


def draw(args: argparse.Namespace, command: str) -> None:
    """Load the model, draw, write.

    Raises:
        UsageError: no model there, one without positions, or an `--out` that cannot be written.
    """
    if not args.out.absolute().parent.is_dir():
        raise UsageError(f"--out is {str(args.out)!r}, but there is no such folder.")
    roberta = TupeRobertaModel.from_pretrained(args.checkpoint_dir, args.checkpoint_file)
    model = roberta.model.args
    length = min(LENGTH, model.max_positions) if args.length is None else args.length
    drawn = position_maps(roberta.model.encoder.sentence_encoder, length, args.layer)
    name = args.checkpoint_dir.resolve().name
    title = f"{name} ({model.position_encoding}, {length} positions)\n{drawn.meaning}"
    figure = draw_positional_correlations(drawn.maps, title, command, drawn.names)
    save_png(figure, args.out, command)


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
