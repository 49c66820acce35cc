"""Flags that the benchmarks share, and what they mean."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from tupe_fairseq import UsageError, build_position_encoding
from tupe_fairseq.attention import ATTENTION_BACKENDS, choose_backend

from .measure import Contender

DTYPES = ("float32", "bfloat16", "float16")


def add_arguments(
    parser: argparse.ArgumentParser, encodings: str, backends: str | dict[str, str]
) -> None:
    """Flags that all benchmarks have; lists are separated by commas, backends may be by device."""
    parser.add_argument(
        "--encodings", metavar="NAMES", default=encodings, help="default: %(default)s"
    )
    parser.add_argument(
        "--backends", metavar="NAMES", default=backends, help="default: %(default)s"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda where there is")
    parser.add_argument("--threads", type=int, metavar="N", help="on the CPU (default: torch's)")
    parser.add_argument("--rounds", type=int, metavar="N", help="measured runs of everything")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all times, by round")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="the tables as printed")


def check(args: argparse.Namespace) -> None:
    """Fill in the device and set the threads.

    Raises:
        UsageError: no such device, a number below 1, or a file in a folder that is not there.
    """
    args.device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if isinstance(args.backends, dict):
        args.backends = args.backends[args.device]
    if args.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device is 'cuda', but torch finds none here; use cpu.")
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
    """What a flag lists, separated by commas; nothing where it was not given.

    Args:
        flag: for messages.
        text: its value.
        known: what it can name; anything where empty.
        kind: str, int or float.

    Raises:
        UsageError: an unknown name, or no such number.
    """
    found = []
    for word in text.split(",") if text else ():
        if known and word not in known:
            raise UsageError(f"{flag} names {word!r}; there are: {', '.join(known)}.")
        try:
            found.append(kind(word))
        except ValueError as error:
            raise UsageError(f"{flag} holds {word!r}, but must be numbers.") from error
    return found


def contenders_of(
    args: argparse.Namespace, width: int, heads: int, length: int, vocabulary: int
) -> list[Contender]:
    """Encodings by the backends that can serve them, each once; the others are told.

    Raises:
        UsageError: unknown encoding or backend.
    """
    found = []
    for name in listed("--encodings", args.encodings):
        encoding = build_position_encoding(name, width, heads, length, vocab_size=vocabulary)
        for backend in listed("--backends", args.backends):
            if backend != "auto":
                ATTENTION_BACKENDS[backend]
            try:
                terms = encoding.build_layer_terms()
                chosen = choose_backend(backend, encoding, terms, device=args.device)
                if reason := chosen.lacks(args.device):
                    raise UsageError(reason)
            except UsageError as reason:
                tell_once(f"left out: {name} by {backend}: {reason}")
                continue
            found.append(Contender(name, chosen.name))
    return list(dict.fromkeys(found))


@functools.cache
def tell_once(message: str) -> None:
    """On stderr."""
    print(message, file=sys.stderr)
