"""Measure the time of an encoder on a CPU, with transformers, other libraries and this package.

    python scripts/benchmark_serving.py --sts-b glue_data/STS-B --out DIRECTORY
    python scripts/benchmark_serving.py --model DIRECTORY --text FILE --out DIRECTORY
    python scripts/benchmark_serving.py --form deberta-v3-small --lengths 128 512 --out DIRECTORY

Prints a table for each number of threads, length and batch size. Texts are sorted by length,
batches are padded to their longest text, and features of all tokens are computed. All ways run in
this process, and each runs the same batches in each round. Ways whose library is not installed
(see the extra `rivals`) are named with the reason. With --sts-b, models that are read from a
directory also get their score on STS-B: the rank correlation of the cosine of their mean features
with the given similarities.

OUT/results.json and OUT/results.md are written after each table; the latter begins with what to
call and what that gains. The same command continues with the missing tables.
"""

import argparse
import json
import logging
import sys
import tempfile
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from benchmarking import summary
from benchmarking.command import INTERRUPTED, aligned, listed, surroundings
from benchmarking.encoders import FORMS, Batch, Encoder, Run, embeddings, read_sts_b, read_texts
from benchmarking.programs import Programs
from benchmarking.rounds import CLOCKS, measure, table
from benchmarking.ways import REFERENCE, WAYS, build, versions

from tupe_fairseq import UsageError
from tupe_fairseq.base.errors import one_line_endings
from tupe_fairseq.base.files import replacing
from tupe_fairseq.base.machine import fact_of_processor

#: Made by scripts/quickstart_released.sh in this checkout, wherever the package is installed.
MODEL = Path(__file__).resolve().parents[1] / ".released/all-MiniLM-L6-v2"
#: As nncf has by default.
SAMPLES = 128
LEGEND = (
    "ms: median over batches and rounds; 95 %: of the batches take at most these ms. texts/s: by "
    "the median round. / NAME: median over the rounds of the ratio to NAME, and its quartiles; "
    "best: the fastest way of the same precision that is not ours. cosine: of mean features of "
    f"texts to those of {REFERENCE}, on average and at least. alone: the same of texts alone to "
    "those in a batch."
)


class Cell(NamedTuple):
    """A table: threads, tokens of each text (0: those of real texts), texts of a batch."""

    threads: int
    length: int
    batch: int

    @property
    def title(self) -> str:
        """As in results."""
        texts = f"{self.length} tokens" if self.length else "texts"
        return f"{texts}, batches of {self.batch}, threads: {self.threads}"


class Serving:
    """What a call measures: the encoder, its ways, and the results so far."""

    def __init__(self, args: argparse.Namespace, argv: list[str] | None, folder: Path):
        self.args = args
        self.argv = argv
        self.ways = [REFERENCE, *listed("--ways", args.ways, WAYS)] if args.ways else list(WAYS)
        self.ways = list(dict.fromkeys(self.ways))
        self.pairs = read_sts_b(args.sts_b) if args.sts_b else None
        self.texts = self.pairs[0] + self.pairs[1] if self.pairs else []
        if args.text:
            self.texts = read_texts(args.text)
        self.encoder = Encoder(args.model, args.form, args.layers)
        folder = (args.programs or folder) / self.encoder.name.replace(", ", "-").replace(" ", "-")
        folder.mkdir(parents=True, exist_ok=True)
        self.programs = Programs(self.encoder, folder, self.samples)
        self.results = read_results(args.out)
        self.built: tuple[int, dict[str, Run | str]] = (0, {})

    @cached_property
    def tokens(self) -> list[list[int]]:
        """Tokens of all texts."""
        return self.encoder.tokens(self.texts)

    def settings(self, count: int) -> dict[str, Any]:
        """What a result depends on; it is measured again if one of these changes."""
        facts = [fact_of_processor(name) for name in ("cpu family", "model")]
        return {
            "texts": (self.args.text or self.args.sts_b or Path("")).name,
            "number_of_texts": len(self.texts),
            "batches": count,
            "rounds": self.args.rounds,
            "clock": self.args.clock,
            "ways": self.ways,
            "versions": versions(),
            "processor": "family {}, model {}".format(*facts),
        }

    def cells(self) -> list[Cell]:
        """Tables in the order in which they are measured."""
        args = self.args
        lengths = [*([0] if self.texts else []), *self.args.lengths]
        each = ((t, length, b) for t in args.threads for length in lengths for b in args.batch)
        return [Cell(*sizes) for sizes in each]

    def batches(self, cell: Cell) -> list[Batch]:
        """What is run in a round."""
        if cell.length:
            return self.encoder.random_batches(cell.length, cell.batch, self.args.batches or 2)
        return self.encoder.batches(self.tokens, cell.batch, self.args.batches or 24)

    def samples(self) -> list[Batch]:
        """Single texts for quantizers."""
        if self.texts:
            return self.encoder.batches(self.tokens, 1, SAMPLES)
        return self.encoder.random_batches(self.args.lengths[0], 1, SAMPLES)

    def runs(self, threads: int) -> dict[str, Run | str]:
        """All ways for a number of threads, or why they are missing."""
        if self.built[0] != threads:
            self.built = (0, {})
            runs = {}
            for name in self.ways:
                print(f"preparing {name}, threads: {threads}", file=sys.stderr, flush=True)
                runs[name] = build(name, self.programs, threads)
            self.built = (threads, runs)
        torch.set_num_threads(threads)
        return self.built[1]

    def cell(self, cell: Cell) -> None:
        """Measure a table, unless it is there."""
        batches = self.batches(cell)
        settings = self.settings(len(batches))
        if self.has(cell.title, settings):
            print(f"{self.encoder.name}: {cell.title}: measured already")
            return
        runs = self.runs(cell.threads)
        found = measure(runs, batches, self.args.rounds, self.args.clock)
        found["fused"] = self.programs.fused
        self.write(cell.title, settings, cell._asdict() | found)
        print(f"\n{self.encoder.name}: {cell.title}\n{aligned(table(found['rows']))}", flush=True)
        for name, reason in found["missing"].items():
            print(f"missing: {name}: {reason}", flush=True)

    def score(self) -> None:
        """The rank correlation of each way on STS-B, unless it is there."""
        title = "STS-B"
        settings = self.settings(0)
        if self.pairs is None or self.encoder.folder is None or self.has(title, settings):
            return
        from scipy.stats import spearmanr

        first, second, similarities = self.pairs
        scores = {}
        for name, run in self.runs(self.args.threads[-1]).items():
            if not isinstance(run, str):
                found = embeddings(self.encoder, run, first + second)
                cosines = torch.cosine_similarity(*found.split(len(first)))
                scores[name] = 100 * float(spearmanr(cosines, similarities).statistic)
        self.write(title, settings, {"scores": scores})
        rows = [["", "precision", title]]
        rows += [[name, name.rpartition("-")[2], f"{n:.2f}"] for name, n in scores.items()]
        print(f"\n{self.encoder.name}: {title}\n{aligned(rows)}", flush=True)

    def has(self, title: str, settings: dict[str, Any]) -> bool:
        """Whether the results have such a table."""
        found = self.results["models"].get(self.encoder.name, {}).get(title, {})
        return found.get("settings") == settings

    def write(self, title: str, settings: dict[str, Any], found: dict[str, Any]) -> None:
        """Add a table to the results."""
        about = surroundings("cpu", "benchmark_serving.py", self.argv)
        del about["threads"]
        tables = self.results["models"].setdefault(self.encoder.name, {})
        tables[title] = {**about, "settings": settings, **found}
        with replacing(self.args.out / "results.json") as aside:
            aside.write_text(json.dumps(self.results, indent=1) + "\n", encoding="utf-8")
        with replacing(self.args.out / "results.md") as aside:
            aside.write_text(summary.page(self.results["models"]), encoding="utf-8")


def read_results(out: Path) -> dict[str, Any]:
    """The results of earlier calls.

    Raises:
        UsageError: the file is damaged.
    """
    path = out / "results.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        found["models"].values()
    except FileNotFoundError:
        return {"models": {}}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"cannot read {str(path)!r}: {error}.") from error
    return found


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """Parse and check the command line.

    Raises:
        UsageError: a number below 1, or nothing to run.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    model = parser.add_mutually_exclusive_group()
    told = "directory of transformers or sentence-transformers (default: %(default)s)"
    model.add_argument("--model", type=Path, default=MODEL, metavar="DIRECTORY", help=told)
    told = f"random parameters instead: {', '.join(FORMS)}"
    model.add_argument("--form", metavar="NAME", help=told)
    add("--layers", type=int, metavar="N", help="of the form: its first ones only")
    add("--text", type=Path, metavar="FILE", help="a text in each line")
    add("--sts-b", type=Path, metavar="FOLDER", help="GLUE's: the score, and texts without --text")
    numbers: dict[str, Any] = {"type": int, "metavar": "N"}
    told = "also measure random texts of these numbers of tokens"
    add("--lengths", **numbers, nargs="+", default=[], help=told)
    told = "texts of a batch (default: 1 16 32)"
    add("--batch", **numbers, nargs="+", default=[1, 16, 32], help=told)
    add("--threads", **numbers, nargs="+", default=[1, 2], help="default: 1 2")
    told = "batches of a round, spread evenly over the lengths (default: 24; 2 of --lengths)"
    add("--batches", **numbers, help=told)
    add("--rounds", **numbers, default=7, help="measurements of each way (default: %(default)s)")
    told = "processor: tell how long this process computes, for a shared machine (default: wall)"
    add("--clock", choices=tuple(CLOCKS), default="wall", help=told)
    add("--ways", metavar="NAMES", help=f"default: {','.join(WAYS)}")
    told = "keep programs there, for further calls (default: a temporary one)"
    add("--programs", type=Path, metavar="DIRECTORY", help=told)
    add("--out", type=Path, required=True, metavar="DIRECTORY", help="for results.json")
    args = parser.parse_args(argv)
    for name in ("lengths", "batch", "threads", "batches", "rounds", "layers"):
        value = getattr(args, name)
        for number in value if isinstance(value, list) else [value]:
            if number is not None and number < 1:
                raise UsageError(f"--{name} is {number}, but must be at least 1.")
    if args.clock == "processor" and set(args.threads) != {1}:
        raise UsageError(
            f"--clock is 'processor', but --threads is {max(args.threads)}: it adds up the "
            "seconds of all threads, so give --threads 1."
        )
    if not (args.text or args.sts_b or args.lengths):
        raise UsageError("nothing to run: give --sts-b, --text or --lengths.")
    return args


def main(argv: list[str] | None = None) -> int:
    """Return the exit status."""
    args = arguments(argv)
    # Importing fairseq turns on the debugging output of all libraries.
    logging.getLogger().setLevel(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        serving = Serving(args, argv, Path(folder))
        args.out.mkdir(parents=True, exist_ok=True)
        print(LEGEND, flush=True)
        try:
            for cell in serving.cells():
                serving.cell(cell)
            serving.score()
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return INTERRUPTED
    return 0


if __name__ == "__main__":
    with one_line_endings():
        sys.exit(main())
