"""The flags that the benchmarks share, and the reports that they write."""

import argparse
import functools
import json
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

from tupe_fairseq import UsageError, build_position_encoding
from tupe_fairseq.attention import ATTENTION_BACKENDS, LayerPlan
from tupe_fairseq.base.files import replacing
from tupe_fairseq.base.machine import commit, processor, shown
from tupe_fairseq.fairseq.commands import add_user_dir

from .compare import Case, Contender

DTYPES = ("float32", "bfloat16", "float16")
LEGEND = (
    "ms: median over the rounds; in each round all rows are measured once, in random order. "
    "/ NAME: median over the rounds of the ratio to NAME, and its quartiles. MiB: peak memory of "
    "a step beyond the memory held before it."
)
INTERRUPTED = 130
#: Further names that --encodings takes: DeBERTa-v3 as released.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "deberta_v3": (
        "deberta",
        {
            "deberta_released": True,
            "deberta_buckets": 256,
            "deberta_share": True,
            "deberta_norm": True,
            "deberta_dropout": 0.1,
        },
    )
}


def add_arguments(parser: argparse.ArgumentParser, encodings: str, backends: str) -> None:
    """Add the shared flags; both defaults are lists separated by commas."""
    add = functools.partial(parser.add_argument, metavar="NAMES")
    add("--encodings", default=encodings, help="default: %(default)s")
    add("--backends", default=backends, help="default: %(default)s")
    add_user_dir(parser)
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda if available")
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads (default: torch's)")
    parser.add_argument("--rounds", type=int, metavar="N", help="measurements of each row")
    parser.add_argument("--json", type=Path, metavar="FILE", help="file for all times, by round")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="file for the tables")


def check(args: argparse.Namespace) -> None:
    """Fill in the device and set the number of threads.

    Raises:
        UsageError: no such device, a number below 1, or a file in a folder that does not exist.
    """
    args.device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if args.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device is 'cuda', but torch finds no GPU; use cpu.")
    for name, value in vars(args).items():
        if type(value) is int and value < 1:
            raise UsageError(f"--{name} is {value}, but must be at least 1.")
        if isinstance(value, Path) and not value.absolute().parent.is_dir():
            raise UsageError(f"--{name} is {str(value)!r}, but there is no such folder.")
    if args.threads:
        torch.set_num_threads(args.threads)


def listed(
    flag: str, text: str | None, known: Iterable[str] = (), kind: Callable = str
) -> list[Any]:
    """Values of a flag that are separated by commas; none if it was not given.

    Raises:
        UsageError: a name that is not among the known ones, or not a number.
    """
    found = []
    for word in text.split(",") if text else ():
        if known and word not in known:
            raise UsageError(f"{flag} names {word!r}; the known names are: {', '.join(known)}.")
        try:
            found.append(kind(word))
        except ValueError as error:
            raise UsageError(f"{flag} holds {word!r}, but must be numbers.") from error
    return found


def contenders_of(
    args: argparse.Namespace, width: int, heads: int, length: int, vocabulary: int
) -> list[Contender]:
    """Encodings with each backend that can compute them; the others are named on stderr.

    Raises:
        UsageError: unknown encoding or backend.
    """
    found = []
    for name in listed("--encodings", args.encodings):
        registered, options = VARIANTS.get(name, (name, {}))
        sizes = (width, heads, length)
        encoding = build_position_encoding(registered, *sizes, vocab_size=vocabulary, **options)
        for backend in listed("--backends", args.backends):
            if backend != "auto":
                ATTENTION_BACKENDS[backend]
            try:
                seen = encoding.at(0)
                plan = LayerPlan.of(seen, seen.build_layer_terms())
                # On GPUs, models are in this dtype.
                x = torch.empty(0, dtype=torch.bfloat16, device=args.device)
                chosen = plan.choose(backend, seen, x, length)
            except UsageError as reason:
                tell_once(f"left out: {name} with {backend}: {reason}")
                continue
            found.append(Contender(name, chosen.name))
    return list(dict.fromkeys(found))


@functools.cache
def tell_once(message: str) -> None:
    """Print on stderr."""
    print(message, file=sys.stderr)


def surroundings(device: str, script: str, argv: list[str] | None) -> dict[str, str]:
    """What the figures depend on."""
    words = sys.argv[1:] if argv is None else argv
    return {
        "command": shown(["python", f"scripts/{script}", *words], {}),
        "device": device_name(device),
        "threads": str(torch.get_num_threads()),
        "torch": torch.__version__,
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "commit": commit(Path(__file__).parent),
    }


def device_name(device: str) -> str:
    """The GPU, or the processor and its number of cores."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    return f"{processor()}, {os.cpu_count()} cores"


def run(cases: Iterable[Case], args: argparse.Namespace, script: str, argv: list | None) -> int:
    """Measure, print, and write the files after each table.

    Returns:
        The exit status.
    """
    # Importing fairseq turns on the debugging output of all libraries, and its use of hydra warns.
    logging.getLogger().setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="hydra|fairseq")
    about = surroundings(args.device, script, argv)
    print("\n".join(f"{key}: {value}" for key, value in about.items()), LEGEND, sep="\n")
    done: list[Case] = []
    for case in cases:
        interrupted = False
        try:
            case.measure(args.device)
        except KeyboardInterrupt:
            interrupted = True
        if case.seconds:
            done.append(case)
            print(f"\n{case.title}: {case.described()}\n{aligned(case.table())}", flush=True)
            write(args, about, done)
        if interrupted:
            print("interrupted", file=sys.stderr)
            return INTERRUPTED
    return 0


def write(args: argparse.Namespace, about: dict[str, str], done: list[Case]) -> None:
    """Write the files that were asked for."""
    if args.json:
        tables = [{"title": c.title, "facts": c.described(), "rows": c.results()} for c in done]
        with replacing(args.json) as aside:
            aside.write_text(json.dumps({**about, "tables": tables}, indent=1) + "\n")
    if args.markdown:
        parts = ["\n".join(f"- {key}: `{value}`" for key, value in about.items()), LEGEND]
        for case in done:
            header, *rows = case.table()
            rule = ["---", "---", *["---:"] * (len(header) - 2)]
            lines = (f"| {' | '.join(row)} |" for row in (header, rule, *rows))
            parts += [f"## {case.title}", case.described(), "\n".join(lines)]
        with replacing(args.markdown) as aside:
            aside.write_text("\n\n".join(parts) + "\n")


def aligned(table: list[list[str]]) -> str:
    """Columns of equal width, the first two aligned to the left."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    align = (str.ljust, str.ljust, *[str.rjust] * (len(widths) - 2))
    rows = (map(lambda f, cell, width: f(cell, width), align, row, widths) for row in table)
    return "\n".join("  ".join(row).rstrip() for row in rows)
