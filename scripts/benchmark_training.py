"""Time and memory of `tupe_roberta` and of stock fairseq RoBERTa, of the same size, by turns.

    python scripts/benchmark_training.py                   all workloads of the device
    python scripts/benchmark_training.py --workloads 4x512,half-padding
    python scripts/benchmark_training.py --workloads 4x512 --batch 8 --encodings tupe_r,alibi

A step makes the features of a batch, without the LM head, and in training their gradients. Matrix
products are the physical limit: those of the same step, without anything between them.
"""

from __future__ import annotations

import argparse
import sys
from argparse import Namespace
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import torch
from benchmarking.command import DTYPES, add_arguments, check, contenders_of, listed
from benchmarking.measure import Case, Contender, Step
from benchmarking.products import CELLS, multiply, shapes_of_layer
from benchmarking.report import run
from benchmarking.workloads import CHANGEABLE, VOCABULARY, WORKLOADS, Workload
from fairseq.data import Dictionary
from fairseq.models.roberta.model import RobertaModel

from tupe_fairseq import TupeRobertaModel, UsageError

STOCK = Contender("stock RoBERTa", "fairseq")
PRODUCTS = Contender("matrix products", "torch")
#: By device: `auto` does not choose triton.
BACKENDS = {"cpu": "auto", "cuda": "auto,triton"}


def prepare(work: Workload, device: str, contender: Contender) -> Step:
    """What a contender does in a round."""
    dtype = getattr(torch, work.dtype)
    if contender == PRODUCTS:
        dimensions = (work.lengths(), work.width, work.heads, work.ffn)
        shapes = shapes_of_layer(*dimensions, work.mode == "training", CELLS[device])
        return multiply(shapes, work.layers, device, dtype)
    model = build(work, contender).to(device, dtype).train(work.mode == "training")
    tokens = work.tokens().to(device)

    def train():
        features, _ = model(tokens, features_only=True)
        features.square().mean().backward()
        model.zero_grad()

    def evaluate():
        with torch.no_grad():
            model(tokens, features_only=True)

    return train if model.training else evaluate


def build(work: Workload, contender: Contender) -> RobertaModel:
    """The model of a row, with random parameters."""
    dictionary = Dictionary()
    for word in range(VOCABULARY - len(dictionary)):
        dictionary.add_symbol(str(word))
    task = SimpleNamespace(source_dictionary=dictionary)
    arguments = Namespace(
        encoder_layers=work.layers,
        encoder_embed_dim=work.width,
        encoder_attention_heads=work.heads,
        encoder_ffn_embed_dim=work.ffn,
        dropout=work.dropout,
        attention_dropout=work.dropout,
        max_positions=work.length,
    )
    if contender == STOCK:
        return RobertaModel.build_model(arguments, task)
    arguments.position_encoding, arguments.attention_backend = contender
    return TupeRobertaModel.build_model(arguments, task)


def cases(args: Namespace) -> list[Case]:
    """A table for every workload and dtype."""
    of_device = [name for name, work in WORKLOADS.items() if work.device == args.device]
    changes = {name: getattr(args, name) for name in (*CHANGEABLE, "rounds")}
    changes = {name: value for name, value in changes.items() if value is not None}
    is_changed = any(name in CHANGEABLE for name in changes)
    made = []
    for name in listed("--workloads", args.workloads, WORKLOADS) or of_device:
        own = [WORKLOADS[name].dtype]
        for dtype in listed("--dtypes", args.dtypes, DTYPES) or own:
            work = replace(WORKLOADS[name], **changes, dtype=dtype)
            work.check()
            made.append(case_of(f"{name}, changed" if is_changed else name, work, args))
    return made


def case_of(title: str, work: Workload, args: Namespace) -> Case:
    """Stock RoBERTa, encodings by backends, matrix products.

    Our `learned` is RoBERTa too: with no positional bias, its time is what a bias is measured by.
    """
    ours = contenders_of(args, work.width, work.heads, work.length, VOCABULARY)
    references = {"stock": STOCK} if work.stock else {}
    if unbiased := [contender for contender in ours if contender.name == "learned"]:
        references["learned"] = unbiased[0]
    references["products"] = PRODUCTS
    contenders = [*([STOCK] if work.stock else []), *ours, PRODUCTS]
    ready = partial(prepare, work, args.device)
    return Case(title, str(work), ready, contenders, references, work.rounds)


def parse(argv: list[str] | None) -> Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(["workloads:", *(f"  {n:17} {w}" for n, w in WORKLOADS.items())]),
    )
    parser.add_argument("--workloads", metavar="NAMES", help="default: those of the device")
    parser.add_argument("--dtypes", metavar="NAMES", help="default: the workload's own")
    for name in CHANGEABLE:
        kind = type(getattr(WORKLOADS["4x512"], name))
        choices = ("training", "evaluation") if name == "mode" else None
        metavar = {int: "N", float: "P"}.get(kind)
        told = "in place of the workload's"
        parser.add_argument(f"--{name}", type=kind, choices=choices, metavar=metavar, help=told)
    add_arguments(parser, encodings="tupe_a,tupe_r,t5,learned,none", backends=BACKENDS)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status."""
    args = parse(argv)
    check(args)
    return run(cases(args), args, "benchmark_training.py", argv)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (UsageError, OSError) as error:
        sys.exit(f"error: {error}")
