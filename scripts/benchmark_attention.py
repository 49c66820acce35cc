"""Time and memory of attention alone, forward and backward, with and without positions.

    python scripts/benchmark_attention.py
    python scripts/benchmark_attention.py --encodings tupe_r --backends auto,eager --lengths 1025

The layers share one positional term; their queries, keys and values are given. Times are divided
by those of torch's scaled_dot_product_attention without a bias.
"""

import argparse
import itertools
import sys
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from benchmarking.command import DTYPES, add_arguments, check, contenders_of, listed, run
from benchmarking.compare import Case, Contender, Step
from torch import Tensor

from tupe_fairseq import UsageError, build_position_encoding
from tupe_fairseq.attention import ATTENTION_BACKENDS, LayerPlan, TupeMultiheadAttention
from tupe_fairseq.base.errors import one_line_endings

NO_BIAS = Contender("no bias", "torch")
#: For encodings that depend on tokens.
VOCABULARY = 1000
#: Default number of tokens in a batch, and default dtype.
WORDS = {"cpu": 2048, "cuda": 65536}
DTYPE = {"cpu": "float32", "cuda": "bfloat16"}


class Setting(NamedTuple):
    """What a table measures: B sentences of T = S tokens, and `layers` that share a term."""

    batch: int
    length: int
    layers: int
    width: int
    heads: int
    dropout: float
    dtype: str
    mode: str

    def __str__(self):
        return (
            f"{self.mode}, {self.batch}×{self.length} tokens, {self.layers} layers, "
            f"width {self.width}, {self.heads} heads, dropout {self.dropout:g}, {self.dtype}"
        )


def prepare(setting: Setting, device: str, contender: Contender) -> Step:
    """The step of a row."""
    learns = setting.mode == "training"
    # B×H×T×D
    shape = (setting.batch, setting.heads, setting.length, setting.width // setting.heads)
    made = {"device": device, "dtype": getattr(torch, setting.dtype)}
    # Of q, k and v: attention is given scaled queries.
    scales = (shape[-1] ** -0.5, 1, 1)
    layers = [
        [torch.randn(shape, **made).mul_(scale).requires_grad_(learns) for scale in scales]
        for _ in range(setting.layers)
    ]
    gradients = [torch.randn(shape, **made)] * setting.layers
    begin, parameters = build(setting, contender, **made)
    leaves = [*itertools.chain(*layers), *parameters]

    def step():
        with torch.set_grad_enabled(learns):
            attend = begin()
            outputs = [attend(*qkv) for qkv in layers]
        if learns:
            torch.autograd.backward(outputs, gradients)
            for leaf in leaves:
                leaf.grad = None

    return step


def build(
    setting: Setting, contender: Contender, device: str, dtype: torch.dtype
) -> tuple[Callable[[], Callable[..., Tensor]], list[Tensor]]:
    """A function that begins a pass and returns the attention of its layers; and parameters."""
    learns = setting.mode == "training"
    if contender == NO_BIAS:
        dropout = setting.dropout if learns else 0.0
        attention = partial(F.scaled_dot_product_attention, dropout_p=dropout, scale=1.0)
        return lambda: attention, []
    name, backend = contender
    encoding = build_position_encoding(
        name, setting.width, setting.heads, setting.length, vocab_size=VOCABULARY
    )
    encoding.to(device, dtype).train(learns)
    seen = encoding.at(0)
    terms = seen.build_layer_terms()
    parameters = [*encoding.parameters()]
    if terms is not None:
        parameters += terms.to(device, dtype).train(learns).parameters()
    x = torch.zeros(setting.batch, setting.length, setting.width, device=device, dtype=dtype)
    dropout = setting.dropout if learns else 0.0
    plan = LayerPlan.of(seen, terms)
    layer = TupeMultiheadAttention(setting.width, setting.heads).to(device, dtype)

    def begin():
        prepared = plan.prepare(seen, x, backend=backend)

        def attend(q, k, v):
            q, k, v = seen.rotate(q, k, v)
            relative = None
            if terms is not None:
                q, k, v = terms.rotate(q, k, v, seen)
                if terms.uses("relative"):
                    relative = terms.relative(seen, setting.length, layer)
            return prepared.backend.attend(q, k, v, prepared, dropout, relative)

        return attend

    return begin, parameters


def cases(args: Namespace) -> list[Case]:
    """A table for every length, dtype and dropout."""
    if args.width % args.heads:
        raise UsageError(f"--heads must divide --width {args.width}, but is {args.heads}.")
    words = args.words or WORDS[args.device]
    lengths = listed("--lengths", args.lengths, kind=int)
    dtypes = listed("--dtypes", args.dtypes, DTYPES) or [DTYPE[args.device]]
    dropouts = listed("--dropouts", args.dropouts, kind=float)
    if min(lengths) < 1:
        raise UsageError(f"--lengths holds {min(lengths)}, but must be at least 1.")
    if not 0 <= min(dropouts) <= max(dropouts) < 1:
        raise UsageError(f"--dropouts is {args.dropouts}, but must be from 0 to below 1.")
    made = []
    for length, dtype, dropout in itertools.product(lengths, dtypes, dropouts):
        sizes = (max(1, words // length), length, args.layers, args.width, args.heads)
        setting = Setting(*sizes, dropout, dtype, args.mode)
        ours = contenders_of(args, args.width, args.heads, length, VOCABULARY)
        ready = partial(prepare, setting, args.device)
        about = (f"{setting.batch}×{length}", str(setting), ready, [NO_BIAS, *ours])
        made.append(Case(*about, {"no bias": NO_BIAS}, args.rounds or 11))
    return made


def main(argv: list[str] | None = None) -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--lengths", metavar="N,N", default="128,512,2048", help="lengths of sentences, in tokens")
    add("--words", type=int, metavar="N", help=f"tokens in a batch (default: {WORDS})")
    add("--dtypes", metavar="NAMES", help=f"default: {DTYPE}")
    add("--dropouts", metavar="P,P", default="0.1", help="dropout of attention weights")
    add("--mode", choices=("training", "evaluation"), default="training")
    add("--layers", type=int, default=6, help="number of layers that share a positional term")
    add("--width", type=int, default=256, help="width of all heads together")
    add("--heads", type=int, default=4)
    add_arguments(parser, encodings="none,t5,tupe_a,tupe_r", backends=",".join(ATTENTION_BACKENDS))
    args = parser.parse_args(argv)
    check(args)
    return run(cases(args), args, "benchmark_attention.py", argv)


if __name__ == "__main__":
    with one_line_endings():
        sys.exit(main())
