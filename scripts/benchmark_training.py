"""Time and memory of `tupe_roberta`, and of other models of the same size.

    python scripts/benchmark_training.py                   all workloads of the device
    python scripts/benchmark_training.py --workloads 4x512,half-padding
    python scripts/benchmark_training.py --workloads 4x512 --batch 8 --encodings tupe_r,alibi
    python scripts/benchmark_training.py --peers hf_deberta_v2 --encodings deberta,deberta_v3
    python scripts/benchmark_training.py --peers hf_modernbert,optimized_modernbert

A step computes the features of a batch, without the LM head, and in training their gradients; with
--mode predict, the classes of texts by the hub's `predict`. The other models are stock fairseq
RoBERTa and --peers of transformers, where these are installed. The row of matrix products is a
lower bound: the products of the same step and nothing else.
"""

import argparse
import sys
from argparse import Namespace
from dataclasses import dataclass, replace
from functools import partial

import torch
from benchmarking.command import DTYPES, add_arguments, check, contenders_of, listed, run
from benchmarking.compare import Case, Contender, Step
from benchmarking.models import HAS_FAIRSEQ, STOCK
from benchmarking.models import build as build_own
from benchmarking.peers import PEERS, available
from benchmarking.peers import build as build_peer
from benchmarking.products import CELLS, multiply, shapes_of_layer

from tupe_fairseq import UsageError
from tupe_fairseq.base.errors import one_line_endings

PRODUCTS = Contender("matrix products", "torch")
#: Size of the dictionary; the LM head is not part of a step.
VOCABULARY = 1000


@dataclass(frozen=True)
class Workload:
    """What is measured in a table.

    Attributes:
        batch: sentences B.
        length: tokens of the longest, T.
        padding: share of the cells; the lengths are spaced evenly.
        mode: "training", "evaluation", or "predict" for the hub's method.
        device: on which it runs by default; "named": it runs if its name is given, on any device.
        rounds: unless --rounds is given.
        stock: whether stock RoBERTa and peers are measured too; stock's attention over 16,384
            tokens alone would take 50 GB.
        repeats: evaluations in a step.
        compiled: whether our layers run through torch.compile.
    """

    batch: int
    length: int
    padding: float = 0.0
    mode: str = "training"
    layers: int = 6
    width: int = 256
    heads: int = 4
    ffn: int = 1024
    dropout: float = 0.1
    dtype: str = "float32"
    device: str = "cpu"
    rounds: int = 11
    stock: bool = True
    repeats: int = 1
    compiled: bool = False

    def __str__(self):
        return (
            f"{self.mode}, {self.batch}×{self.length} tokens, {self.padding:.0%} padding, "
            f"{self.layers} layers, width {self.width}, {self.heads} heads, feed-forward "
            f"{self.ffn}, dropout {self.dropout:g}, {self.dtype}"
            + (f", {self.repeats} times" if self.repeats > 1 else "")
            + (", our layers compiled" if self.compiled else "")
        )

    def lengths(self) -> list[int]:
        """Tokens of each sentence, the longest first."""
        shortest = self.length * (1 - 2 * self.padding)
        spread = torch.linspace(self.length, shortest, self.batch, dtype=torch.float64)
        return spread.round().long().clamp(min=1).tolist()

    def tokens(self) -> torch.Tensor:
        """The same random tokens at every call, B×T, followed by <pad> (1)."""
        generator = torch.Generator().manual_seed(1)
        tokens = torch.randint(4, VOCABULARY, (self.batch, self.length), generator=generator)
        lengths = torch.tensor(self.lengths())[:, None]
        return tokens.masked_fill(torch.arange(self.length) >= lengths, 1)

    def check(self) -> None:
        """Raise UsageError if there is no such model or batch."""
        if self.width % self.heads:
            raise UsageError(f"--heads must divide --width {self.width}, but is {self.heads}.")
        if not 0 <= self.padding <= 0.5 or (self.padding and self.batch == 1):
            raise UsageError(
                f"--padding is {self.padding:g}, but must be from 0 to 0.5, or 0 for 1 sentence."
            )
        if not 0 <= self.dropout < 1:
            raise UsageError(f"--dropout is {self.dropout:g}, but must be from 0 to below 1.")


BASE = {"layers": 12, "width": 768, "heads": 12, "ffn": 3072}
LONG = {"layers": 4, "width": 128, "ffn": 512, "stock": False, "device": "named", "rounds": 1}
EVALUATED = {
    "4x512": Workload(4, 512),
    "16x128": Workload(16, 128),
    "half-padding": Workload(8, 256, padding=0.5),
    "1x16": Workload(1, 16, repeats=20),
}
WORKLOADS = {
    "4x512": Workload(4, 512),
    "16x128": Workload(16, 128),
    "base-2x512": Workload(2, 512, **BASE, rounds=5),
    **{
        f"{mode}-{name}": replace(work, mode=mode, device="cpu" if at_once else "named")
        for mode, at_once in (("evaluation", True), ("predict", False))
        for name, work in EVALUATED.items()
    },
    "half-padding": Workload(8, 256, padding=0.5),
    "memory-1x4096": Workload(1, 4096, rounds=2),
    "long-1x16384": Workload(1, 16384, **LONG),
    # All in half precision, as with fairseq's --bf16.
    "gpu-32x512": Workload(32, 512, **BASE, dtype="bfloat16", device="cuda", rounds=21),
}
#: What flags change, in every workload that is run.
CHANGEABLE = ("batch", "length", "padding", "mode", "layers", "width", "heads", "ffn", "dropout")


def prepare(work: Workload, device: str, contender: Contender) -> Step:
    """The step of a row."""
    dtype = getattr(torch, work.dtype)
    if contender == PRODUCTS:
        dimensions = (work.lengths(), work.width, work.heads, work.ffn)
        shapes = shapes_of_layer(*dimensions, work.mode == "training", CELLS[device])
        return multiply(shapes, work.layers * work.repeats, device, dtype)
    model = build(work, contender).to(device, dtype).train(work.mode == "training")
    tokens = work.tokens().to(device)

    def train():
        features, _ = model(tokens, features_only=True)
        features.square().mean().backward()
        model.zero_grad()

    def evaluate():
        with torch.no_grad():
            for _ in range(work.repeats):
                model(tokens, features_only=True)

    def predict():
        with torch.no_grad():
            for _ in range(work.repeats):
                model.predict("head", tokens)

    return {"training": train, "evaluation": evaluate, "predict": predict}[work.mode]


def build(work: Workload, contender: Contender) -> torch.nn.Module:
    """The model of a row, with random parameters."""
    for peer in PEERS.values():
        if contender == peer.contender:
            return build_peer(peer, work, VOCABULARY)
    return build_own(work, contender, VOCABULARY)


def cases(args: Namespace) -> list[Case]:
    """A table for every workload and dtype."""
    of_device = [name for name, work in WORKLOADS.items() if work.device == args.device]
    changes = {name: getattr(args, name) for name in (*CHANGEABLE, "rounds")}
    changes = {name: value for name, value in changes.items() if value is not None}
    is_changed = any(name in CHANGEABLE for name in changes)
    made = []
    for name in listed("--workloads", args.workloads, WORKLOADS) or of_device:
        for dtype in listed("--dtypes", args.dtypes, DTYPES) or [WORKLOADS[name].dtype]:
            work = replace(WORKLOADS[name], **changes, dtype=dtype, compiled=args.compile_layers)
            work.check()
            made.append(case_of(f"{name}, changed" if is_changed else name, work, args))
    return made


def case_of(title: str, work: Workload, args: Namespace) -> Case:
    """Stock RoBERTa, encodings with backends, peers, matrix products.

    Our `learned` is RoBERTa without a positional bias: the others' ratio to it is the bias's cost.
    """
    ours = contenders_of(args, work.width, work.heads, work.length, VOCABULARY)
    has_stock = work.stock and HAS_FAIRSEQ
    references = {"stock": STOCK} if has_stock else {}
    if unbiased := [contender for contender in ours if contender.name == "learned"]:
        references["learned"] = unbiased[0]
    references["products"] = PRODUCTS
    peers = [PEERS[name] for name in listed("--peers", args.peers, PEERS) if work.stock]
    references |= {peer.contender.name: peer.contender for peer in peers}
    others = [peer.contender for peer in peers]
    contenders = [*([STOCK] if has_stock else []), *ours, *others, PRODUCTS]
    ready = partial(prepare, work, args.device)
    return Case(title, str(work), ready, contenders, references, work.rounds)


def main(argv: list[str] | None = None) -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(["workloads:", *(f"  {n:17} {w}" for n, w in WORKLOADS.items())]),
    )
    parser.add_argument("--workloads", metavar="NAMES", help="default: those of the device")
    parser.add_argument("--dtypes", metavar="NAMES", help="default: that of the workload")
    names = ",".join(PEERS)
    told = f"models of transformers: {names} (default: hf_*, if it is installed), or ''"
    parser.add_argument("--peers", metavar="NAMES", default=",".join(available()), help=told)
    for name in CHANGEABLE:
        kind = type(getattr(WORKLOADS["4x512"], name))
        choices = ("training", "evaluation", "predict") if name == "mode" else None
        metavar = {int: "N", float: "P"}.get(kind)
        told = "instead of the workload's"
        parser.add_argument(f"--{name}", type=kind, choices=choices, metavar=metavar, help=told)
    told = "run our layers through torch.compile, as training on GPUs does by default"
    parser.add_argument("--compile-layers", action="store_true", help=told)
    add_arguments(parser, encodings="tupe_a,tupe_r,t5,learned,none", backends="auto")
    args = parser.parse_args(argv)
    check(args)
    return run(cases(args), args, "benchmark_training.py", argv)


if __name__ == "__main__":
    with one_line_endings():
        sys.exit(main())
