"""Replace the position encoding of a released encoder, by distillation from the original.

    python -m examples.transplant SOURCE TEXT --position-encoding tupe_r --out DIRECTORY

SOURCE is a directory of transformers or sentence-transformers with a BERT, RoBERTa, DeBERTa or
ModernBERT. TEXT has a sentence or paragraph in each line; no labels are needed. The encoder starts
from the parameters of SOURCE with new positions, and is trained to have the features of SOURCE.
Training ends when the error on held-out lines no longer falls, or after --updates. The same
command continues after an interruption.

OUT/transformers and OUT/fairseq have the encoder for each library, and OUT/progress.json has the
measures on held-out lines (fidelity.py).
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers

from examples.shared import script
from examples.shared.settings import keep
from tupe_fairseq import UsageError
from tupe_fairseq.convert.dictionaries import dictionary_for
from tupe_fairseq.convert.sentence_modules import SentenceModel, read_sentence_model, text_notes
from tupe_fairseq.position import POSITION_ENCODINGS, known_options, model_options

from .encoders import RESULTS, Encoder, read_source, transplanted, write
from .start import fit_bias, keep_mean_position
from .texts import Texts, check_pairs
from .training import CHECKPOINT, PROGRESS, Distillation, Recipe

#: Tokens of a text.
LENGTH = 128
STARTS = ("mean", "fitted", "random")


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.transplant",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("source", type=Path, metavar="SOURCE", help="directory of the released encoder")
    add("text", type=Path, metavar="TEXT", help="file with a text in each line")
    add("--out", type=Path, required=True, metavar="DIRECTORY", help="new, or interrupted")
    names = ", ".join(POSITION_ENCODINGS)
    add("--position-encoding", required=True, metavar="NAME", help=f"one of: {names}")
    told = f"maximum tokens of a text (default: {LENGTH}, or fewer if SOURCE reads fewer)"
    add("--length", type=int, metavar="N", help=told)
    told = "maximum tokens of a text for the new encoder (default: those of SOURCE)"
    add("--max-positions", type=int, metavar="N", help=told)
    add("--updates", type=int, default=2000, metavar="N", help="maximum (default: %(default)s)")
    add("--lr", type=float, default=3e-4, metavar="X", help="default: %(default)s")
    told = "of the parameters of the position encoding (default: %(default)s)"
    add("--position-lr", type=float, default=2e-3, metavar="X", help=told)
    add("--batch-size", type=int, default=32, metavar="N", help="texts (default: %(default)s)")
    told = "share of texts whose words are in another order (default: %(default)s)"
    add("--disordered", type=float, default=0.5, metavar="X", help=told)
    told = "share of texts that are read as the pair of their halves (default: %(default)s)"
    add("--pairs", type=float, default=0.5, metavar="X", help=told)
    told = "weight of the features of layers before the last one (default: %(default)s)"
    add("--layers", type=float, default=4.0, metavar="X", help=told)
    add("--start", choices=STARTS, default="fitted", help="see start.py (default: %(default)s)")
    add("--seed", type=int, default=1, metavar="N")
    options = parser.add_argument_group(
        "options of encodings (tupe_fairseq/fairseq/arguments/README.md)"
    )
    for option in (*model_options(), *known_options().values()):
        boolean = {"action": argparse.BooleanOptionalAction}
        kind = boolean if option.type is bool else {"type": option.type}
        options.add_argument(
            option.flag, dest=f"option.{option.name}", help=argparse.SUPPRESS, **kind
        )
    args = parser.parse_args(argv)
    for name in ("updates", "batch_size", "length", "max_positions"):
        if (value := getattr(args, name)) is not None and value < 1:
            flag = name.replace("_", "-")
            raise UsageError(f"--{flag} is {value}, but must be at least 1.")
    for name in ("disordered", "pairs"):
        if not 0 <= (value := getattr(args, name)) <= 1:
            raise UsageError(f"--{name} is {value}, but must be between 0 and 1.")
    return args


def chosen_options(args: argparse.Namespace) -> dict[str, Any]:
    """Options of the encoding and of every encoding that were given.

    Raises:
        UsageError: the encoding does not exist, is for decoders, or has no such option.
    """
    name = args.position_encoding
    given = vars(args)
    own = POSITION_ENCODINGS[name].options()
    known = {option.name for option in (*model_options(), *own)}
    options = {key.removeprefix("option."): v for key, v in given.items() if "." in key}
    options = {key: value for key, value in options.items() if value is not None}
    for key in options:
        if key not in known:
            flag = key.replace("_", "-")
            raise UsageError(f"--{flag} does not apply to --position-encoding {name}.")
    if options.get("extend_positions") == "hierarchical":
        raise UsageError(
            "--extend-positions is 'hierarchical', which continues trained positions, but those "
            "of a transplant are new."
        )
    return options


def main(argv: list[str] | None = None) -> None:
    """See the module's docstring."""
    args = arguments(argv)
    converted = read_source(args.source)
    longest = converted.settings["max_position_embeddings"]
    positions = args.max_positions or longest
    both = min(longest, positions)
    args.length = args.length or min(LENGTH, both)
    if args.length > both:
        raise UsageError(
            f"--length is {args.length}, but must be at most {both}, which both encoders can read."
        )
    options = chosen_options(args)
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.source)
    check_pairs(tokenizer, args.pairs)
    texts = Texts(args.text, tokenizer, args.length)
    continues = POSITION_ENCODINGS[args.position_encoding].continues_by_distance
    if continues and texts.longest < positions:
        # Those that no text reaches in training.
        options.setdefault("extend_positions", "toeplitz")
        options.setdefault("trained_positions", texts.longest)
    made = transplanted(converted, args.position_encoding, options, args.max_positions, args.seed)
    dictionary_for(made)  # Raises an error for a tokenizer that fairseq has no dictionary for.
    paths = {name: str(getattr(args, name).resolve()) for name in ("source", "text")}
    keep(args.out, {**vars(args), **paths, "out": None})
    if (args.out / RESULTS[-1]).exists():
        print(f"{args.out} is complete already.")
        return
    print(*made.notes, sep="\n", file=sys.stderr)
    torch.manual_seed(args.seed)
    source = Encoder(converted).eval()
    student = Encoder(made)
    warn(args, texts, student, read_sentence_model(made.files))
    if args.start != "random":
        keep_mean_position(source, student, texts.longest)
    if args.start == "fitted":
        fit_bias(source, student, texts)
    names = ("updates", "lr", "position_lr", "batch_size", "disordered", "pairs", "layers", "seed")
    recipe = Recipe(*(getattr(args, name) for name in names))
    Distillation(student, source, texts, recipe, args.out).run()
    made.state = student.state(made)
    last = json.loads((args.out / PROGRESS).read_text())[-1]
    made.training = described(args, texts, last)
    notes = write(made, args.out)
    (args.out / CHECKPOINT).unlink(missing_ok=True)
    print(*notes, f"written: {args.out}/transformers, {args.out}/fairseq", sep="\n")


def warn(
    args: argparse.Namespace, texts: Texts, student: Encoder, sentences: SentenceModel | None
) -> None:
    """Say what --length leaves out, parts of texts and positions, and what TEXT should have."""
    for note in text_notes(sentences, "the distillation", texts.longest) if sentences else ():
        print(note, file=sys.stderr)
    if texts.share_cut > 0.5:
        print(f"--length {args.length} cuts {texts.share_cut:.0%} of the texts.", file=sys.stderr)
    encoding = student.base.encoder.embed_positions
    longest = texts.longest
    positions = encoding.shape.max_positions
    extended = encoding.shape.extend_positions
    if encoding.position_tables() and longest < positions and not extended:
        print(
            f"Position embeddings from {longest} on are not trained, since texts have at most "
            f"{longest} tokens: give --length {positions} and longer texts, or --max-positions "
            f"{longest}.",
            file=sys.stderr,
        )


def described(args: argparse.Namespace, texts: Texts, last: dict[str, float]) -> dict[str, Any]:
    """What the model card says of the training."""
    source = args.source.resolve().name
    return {
        "data": args.text.name,
        "updates": last["update"],
        "validation": f"cosine {last['cosine']:.3f} to the features of {source}",
        "origin": f"`{source}`, whose licence applies. Its positions were replaced, and the model "
        f"was distilled from it, on texts of at most {texts.longest} tokens",
    }


if __name__ == "__main__":
    script.run(main)
