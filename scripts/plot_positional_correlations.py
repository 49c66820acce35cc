"""Draw what a trained model has learned about positions: heat maps of query by key position.

    python scripts/plot_positional_correlations.py CHECKPOINT_DIR --out FILE.png

For TUPE, T5 and ALiBi: the positional part of the scores, a map per head. For Shaw, Transformer-XL
and DeBERTa: the positional part of a layer's scores for an average token, or its magnitude for
random tokens. For RoPE: q · k as a function of the distance. For encodings that enter the input:
the cosine of the position vectors. The title says which.

CHECKPOINT_DIR is an argument of `TupeRobertaModel.from_pretrained`: a folder with a checkpoint and
its dictionary. The command is written below the figure and into the file's metadata.
"""

import argparse
import logging
import sys
import warnings
from pathlib import Path

# Importing fairseq would advise to install tensorboardX.
logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)

from drawing.maps import position_maps  # noqa: E402
from drawing.plots import draw_positional_correlations, save_png  # noqa: E402

from tupe_fairseq import TupeRobertaModel, UsageError  # noqa: E402
from tupe_fairseq.base.errors import one_line_endings  # noqa: E402
from tupe_fairseq.base.machine import shown  # noqa: E402
from tupe_fairseq.fairseq.commands import add_user_dir  # noqa: E402

#: Default maximum; with more positions, single ones are not visible in a figure.
LENGTH = 128


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint_dir", type=Path, help="folder of the checkpoint")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.png")
    parser.add_argument(
        "--length", type=int, metavar="N", help=f"positions shown (default: at most {LENGTH})"
    )
    parser.add_argument("--layer", type=int, default=1, metavar="N", help="where layers differ")
    parser.add_argument("--checkpoint-file", metavar="NAME", help="default: model.pt, ...")
    parser.add_argument(
        "--dictionary", type=Path, metavar="DIR", help="of dict.txt (default: the model's)"
    )
    add_user_dir(parser)
    return parser.parse_args(argv)


def draw(args: argparse.Namespace, command: str) -> None:
    """Load the model, draw, write.

    Raises:
        UsageError: no such model, a model without positions, or `--out` cannot be written.
    """
    if not args.out.absolute().parent.is_dir():
        raise UsageError(f"--out is {str(args.out)!r}, but there is no such folder.")
    roberta = TupeRobertaModel.from_pretrained(
        args.checkpoint_dir, args.checkpoint_file, args.dictionary
    )
    model = roberta.model.args
    length = min(LENGTH, model.max_positions) if args.length is None else args.length
    drawn = position_maps(roberta.model.encoder.sentence_encoder, length, args.layer)
    name = args.checkpoint_dir.resolve().name
    title = f"{name} ({model.position_encoding}, {length} positions)\n{drawn.meaning}"
    figure = draw_positional_correlations(drawn.maps, title, command, drawn.names)
    save_png(figure, args.out, command)


def main(argv: list[str] | None = None) -> None:
    """Draw; a UsageError ends the program with one line."""
    words = sys.argv[1:] if argv is None else argv
    command = shown(["python", "scripts/plot_positional_correlations.py", *words], {})
    # Importing fairseq turns on the debugging output of all libraries, and its use of hydra warns.
    logging.getLogger().setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="hydra|fairseq")
    with one_line_endings():
        draw(parse_arguments(argv), command)


if __name__ == "__main__":
    main()
