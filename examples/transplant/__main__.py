"""Replace the position encoding of a released encoder, by distillation from the original.

    python -m examples.transplant SOURCE TEXT --position-encoding tupe_r --out DIRECTORY

SOURCE is a directory of transformers or sentence-transformers with a BERT, RoBERTa, DeBERTa or
ModernBERT. TEXT has a sentence or paragraph in each line; no labels are needed. The encoder starts
from the parameters of SOURCE with new positions, and is trained to have the features of SOURCE.
Training ends when the error on held-out lines no longer falls, or after --updates. The same
command continues after an interruption.

OUT/transformers and OUT/fairseq have the encoder for each library, and OUT/progress.json has the
measures on held-out lines (tupe_fairseq/transplant/fidelity.py). With more --updates, it goes on.
"""

import argparse
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import transformers

from examples.shared import script
from tupe_fairseq.base.files import replacing
from tupe_fairseq.convert.dictionaries import dictionary_for
from tupe_fairseq.position import POSITION_ENCODINGS, known_options, model_options
from tupe_fairseq.transplant import Distilled, Recipe, distil
from tupe_fairseq.transplant.recipe import LENGTH, STARTS

from .files import read_source, write

#: Says after how many updates the folders were written.
WRITTEN = "written.json"


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
    told = "new, interrupted, or of fewer updates"
    add("--out", type=Path, required=True, metavar="DIRECTORY", help=told)
    names = ", ".join(POSITION_ENCODINGS)
    add("--position-encoding", required=True, metavar="NAME", help=f"one of: {names}")
    told = f"maximum tokens of a text (default: {LENGTH}, or fewer if SOURCE reads fewer)"
    add("--length", type=int, metavar="N", help=told)
    told = "maximum tokens of a text for the new encoder (default: those of SOURCE)"
    add("--max-positions", type=int, metavar="N", help=told)
    told = "maximum (default: %(default)s)"
    add("--updates", type=int, default=Recipe.updates, metavar="N", help=told)
    add("--lr", type=float, default=Recipe.lr, metavar="X", help="default: %(default)s")
    told = "of the parameters of the position encoding (default: %(default)s)"
    add("--position-lr", type=float, default=Recipe.position_lr, metavar="X", help=told)
    told = "texts (default: %(default)s)"
    add("--batch-size", type=int, default=Recipe.batch_size, metavar="N", help=told)
    told = "share of texts whose words are in another order (default: %(default)s)"
    add("--disordered", type=float, default=Recipe.disordered, metavar="X", help=told)
    told = "share of texts that are read as the pair of their halves (default: %(default)s)"
    add("--pairs", type=float, default=Recipe.pairs, metavar="X", help=told)
    told = "weight of the features of layers before the last one (default: %(default)s)"
    add("--layers", type=float, default=Recipe.layers, metavar="X", help=told)
    told = "mean keeps the mean of the positions of SOURCE (default: %(default)s)"
    add("--start", choices=STARTS, default=Recipe.start, help=told)
    add("--seed", type=int, default=Recipe.seed, metavar="N")
    add("--bf16", action="store_true", help="products in bfloat16 in the training")
    options = parser.add_argument_group(
        "options of encodings (tupe_fairseq/fairseq/arguments/README.md)"
    )
    for option in (*model_options(), *known_options().values()):
        boolean = {"action": argparse.BooleanOptionalAction}
        kind = boolean if option.type is bool else {"type": option.type}
        options.add_argument(
            option.flag, dest=f"option.{option.name}", help=argparse.SUPPRESS, **kind
        )
    return parser.parse_args(argv)


def recipe_of(args: argparse.Namespace) -> Recipe:
    """What the command line says of the transplant."""
    given = vars(args)
    options = {key.removeprefix("option."): v for key, v in given.items() if "." in key}
    options = {key: value for key, value in options.items() if value is not None}
    own = {each.name for each in fields(Recipe)} & given.keys()
    return Recipe(options=options, **{name: given[name] for name in own})


def main(argv: list[str] | None = None) -> None:
    """See the module's docstring."""
    args = arguments(argv)
    recipe = recipe_of(args)
    source = read_source(args.source)
    dictionary_for(source)  # Raises an error for a tokenizer that fairseq has no dictionary for.
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.source)
    result = distil(source, tokenizer, args.text, recipe, args.out)
    done = {"updates": result.measures["update"]}
    written = args.out / WRITTEN
    if written.exists() and json.loads(written.read_text()) == done:
        print(f"{args.out} is complete already; more --updates go on.")
        return
    made = result.converted
    made.training = described(args, result)
    notes = write(made, args.out)
    with replacing(written) as aside:
        aside.write_text(json.dumps(done) + "\n")
    print(*notes, f"written: {args.out}/transformers, {args.out}/fairseq", sep="\n")


def described(args: argparse.Namespace, result: Distilled) -> dict[str, Any]:
    """What the model card says of the training."""
    source = args.source.resolve().name
    return {
        "data": args.text.name,
        "updates": result.measures["update"],
        "validation": f"cosine {result.measures['cosine']:.3f} to the features of {source}",
        "origin": f"`{source}`, whose licence applies. Its positions were replaced, and the model "
        f"was distilled from it, on texts of at most {result.longest} tokens",
    }


if __name__ == "__main__":
    script.run(main)
