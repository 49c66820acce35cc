"""The command behind scripts/convert_checkpoint.py: read one format, write another, compare."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from fairseq import utils
from torch import Tensor

from ..errors import UsageError
from ..hub.files import find_checkpoint
from ..hub.roberta import load_directory
from ..standalone.masked_lm import TUPEMaskedLM
from . import fairseq_roberta, huggingface, standalone, tupe_official, tupe_official_forward
from .check import batch, check_directory, compare
from .directory import Converted, load, read_parameters, write

Forward = Callable[[Tensor], tuple[Tensor, Tensor]]
SOURCES = ("tupe-official", "fairseq-roberta", "huggingface")
TARGETS = ("huggingface", "standalone")


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Convert a model from elsewhere to a tupe_roberta directory, or such a "
        "directory to a format of elsewhere."
    )
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--from", dest="origin", choices=SOURCES, help="format of SOURCE")
    way.add_argument("--to", dest="target", choices=TARGETS, help="format of the output")
    parser.add_argument("source", type=Path, help="checkpoint file, or directory")
    parser.add_argument("--out", type=Path, required=True, help="new directory to write")
    parser.add_argument(
        "--dict", type=Path, metavar="FILE", help="default: dict.txt beside SOURCE"
    )
    parser.add_argument(
        "--position-encoding",
        metavar="NAME",
        help="with --from fairseq-roberta: another encoding than `learned` is a warm start",
    )
    parser.add_argument("--seed", type=int, default=1, help="of the new parameters (default: 1)")
    parser.add_argument("--head", help="with --to huggingface: the classification head to write")
    parser.add_argument("--check", action="store_true", help="compare the outputs of both models")
    arguments = parser.parse_args(argv)
    _check_flags(arguments)
    return arguments


def _check_flags(arguments: argparse.Namespace) -> None:
    for name, belongs, to in (
        ("position_encoding", "--from fairseq-roberta", arguments.origin == "fairseq-roberta"),
        ("head", "--to huggingface", arguments.target == "huggingface"),
        ("dict", "--from", arguments.origin is not None),
    ):
        if getattr(arguments, name) is not None and not to:
            flag = "--" + name.replace("_", "-")
            raise UsageError(f"{flag} belongs to {belongs}; leave it out.")


def convert(argv: list[str] | None = None) -> list[str]:
    """Do what the command line says.

    Returns:
        Lines to print.

    Raises:
        UsageError: it cannot be done, or the comparison fails; then nothing is left behind.
    """
    arguments = parse(argv)
    if arguments.source.is_dir() and arguments.origin not in (None, "huggingface"):
        arguments.source = Path(*find_checkpoint(arguments.source, None))
    converted = _read(arguments) if arguments.origin else load(arguments.source)[0]
    if arguments.origin:
        folder = arguments.source if arguments.source.is_dir() else arguments.source.parent
        write(converted, arguments.out, arguments.dict or folder / "dict.txt")
    elif arguments.target == "huggingface":
        huggingface.write(converted, arguments.out, arguments.head)
    else:
        standalone.write(converted, arguments.out)
    report = [*converted.notes, f"written: {arguments.out}"]
    if not arguments.check:
        return report
    try:
        return [*report, *_check(arguments, converted)]
    except BaseException:
        shutil.rmtree(arguments.out)
        raise


def _read(arguments: argparse.Namespace) -> Converted:
    if arguments.origin == "tupe-official":
        return tupe_official.read(arguments.source, arguments.dict)
    if arguments.origin == "huggingface":
        return huggingface.read(arguments.source, arguments.dict)
    encoding = arguments.position_encoding or "learned"
    return fairseq_roberta.read(arguments.source, arguments.dict, encoding, arguments.seed)


def _check(arguments: argparse.Namespace, converted: Converted) -> list[str]:
    if arguments.origin == "tupe-official":
        return check_directory(arguments.out, official(arguments.source, converted))
    if arguments.origin == "fairseq-roberta":
        if converted.settings["position_encoding"] != "learned":
            return ["a warm start computes something else by intent: not compared"]
        stock = fairseq_roberta.stock_model(arguments.source, converted)
        return check_directory(
            arguments.out, lambda x: (stock(x, features_only=True)[0], stock(x)[0])
        )
    if arguments.origin == "huggingface":
        return check_directory(arguments.out, huggingface.transformers_forward(arguments.source))
    return _check_export(arguments)


def official(checkpoint: Path, converted: Converted) -> Forward:
    """The release's model, on its own parameters, in fp32 as ours."""
    state = {n: value.float() for n, value in read_parameters(checkpoint)["model"].items()}
    heads = converted.settings["encoder_attention_heads"]
    activation = utils.get_activation_fn(converted.settings.get("activation_fn", "gelu"))
    return lambda tokens: tupe_official_forward.logits(state, heads, tokens, activation)


@torch.no_grad()
def _check_export(arguments: argparse.Namespace) -> list[str]:
    """Compare what was written with the directory that it was made from."""
    model = load_directory(arguments.source).model.eval()
    tokens = batch(len(model.encoder.dictionary), model.max_positions())
    words = tokens.ne(1)
    if arguments.head:
        theirs = huggingface.transformers_classifier(arguments.out)(tokens)
        ours = model(tokens, classification_head_name=arguments.head)[0]
        return [compare("logits of the head", theirs, ours)]
    if arguments.target == "standalone":
        hidden, logits = TUPEMaskedLM.from_pretrained(arguments.out)(tokens)
    else:
        hidden, logits = huggingface.transformers_forward(arguments.out)(tokens)
    return [
        compare("hidden states", hidden[words], model(tokens, features_only=True)[0][words]),
        compare("logits", logits[words], model(tokens)[0][words]),
    ]
