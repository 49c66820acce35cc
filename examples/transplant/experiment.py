"""How far transplants hold: encodings and starts, and tasks after fine-tuning.

    python -m examples.transplant.experiment SOURCE TEXT GLUE_DIR --articles DIR --out DIRECTORY

SOURCE, TEXT and GLUE_DIR are those of `examples.transplant` and its evaluation; --articles has
output of WikiExtractor. The plan and its hypotheses are in results/plan.md. The parts:

    encodings   each encoding, --updates, three seeds
    starts      tupe_r with positions at random, and with the mean position alone
    order       tupe_r with more updates
    pairs       deberta, and tupe_r with more updates, with half of the texts as pairs; in the
                parts above, there are none
    long        transplants that read 2,048 tokens, and SOURCE by other ways (long_texts.py)
    tasks       fine-tuning of SOURCE and of transplants by transformers' Trainer
    fairseq     fine-tuning of SOURCE and of a transplant by examples/glue/finetune.sh

After an interruption the same command continues; `--only 'encodings/*/1'` runs a part. DIRECTORY
gets PART/NAME/SEED/ of each run, results.json, and the report (report.py).
"""

import argparse
import json
import math
import sys
from itertools import islice
from pathlib import Path
from typing import Any

from examples.glue.readers import read_split
from examples.glue.tasks import TASKS
from examples.shared import script
from examples.shared.markdown import ROOT
from examples.shared.runner import Run, arguments, runner
from tupe_fairseq import UsageError
from tupe_fairseq.files import replacing

from .encoders import RESULTS
from .evaluate import NAME
from .long_texts import article_texts
from .report import report
from .training import PROGRESS

#: `learned` is BERT's own encoding with new positions, and `none` the floor.
ENCODINGS = ("tupe_a", "tupe_r", "rope", "t5", "alibi", "deberta", "learned", "none")
SEEDS = (1, 2, 3)
#: Updates of a longer training: about 15 minutes of two cores.
MORE = 1200
#: Transplants that are fine-tuned, by part and name.
TUNED = (
    "encodings/deberta",
    "pairs/deberta",
    f"order/tupe_r+{MORE}",
    f"pairs/tupe_r+{MORE}",
    "encodings/none",
)
#: The one that is also fine-tuned by fairseq.
TUNED_THERE = f"pairs/tupe_r+{MORE}"
#: Epochs of each task, the examples of a batch, tokens of an example, and the learning rate.
EPOCHS = {"CoLA": 5, "RTE": 3, "MRPC": 3, "STS-B": 3, "SST-2": 1}
EXAMPLES, CUT, RATE = 32, 128, 5e-5
#: Transplants of the part `long`: tokens of a text in training, and flags.
TOEPLITZ = ("--extend-positions", "toeplitz")
EXTENDED: dict[str, tuple[int, tuple[str, ...]]] = {
    "tupe_r": (128, TOEPLITZ),
    "rope": (128, ()),
    "alibi": (128, ()),
    "tupe_r+512": (512, TOEPLITZ),
    "rope+512": (512, ()),
}
#: The ways in which SOURCE and the transplants read long texts.
WAYS = {
    "source": ("truncated", "chunks", "interpolated", "grouped", "hierarchical"),
    "tupe_r": ("plain", "attention_window=64"),
    "rope": (
        "plain",
        "rope_scaling=dynamic+rope_original_positions=128",
        "rope_scaling=yarn+rope_original_positions=128",
        "attention_window=64",
    ),
    "alibi": ("plain",),
    "tupe_r+512": ("plain",),
    "rope+512": ("plain",),
}
LONGEST, ARTICLES = 2048, 100
#: The first articles, which are not for training: the ways read ARTICLES of them.
RESERVED = 1000
#: Tokens of a text, and texts of an update; tokens of an update with long texts.
LENGTH, BATCH, TOKENS = 64, 32, 2048
#: The share of texts that are pairs, in the part `pairs`.
PAIRS = 0.5
#: The file of a way's measures.
WAY = "measures.json"


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.transplant.experiment", description=__doc__.split("\n", 1)[0]
    )
    for name in ("source", "text", "glue"):
        parser.add_argument(name, type=Path, metavar={"glue": "GLUE_DIR"}.get(name, name.upper()))
    told = "folder of WikiExtractor's output (default: leave out the part `long`)"
    parser.add_argument("--articles", type=Path, help=told)
    parser.add_argument("--updates", type=int, default=400, help="default: %(default)s")
    parser.add_argument(
        "--tasks", nargs="+", choices=EPOCHS, default=["CoLA"], help="default: CoLA"
    )
    parser.add_argument("--bf16", action="store_true", help="fine-tune with products in bf16")
    args = arguments(parser, argv, "examples.transplant.experiment", trains=False)
    for path in filter(None, (args.source, args.text, args.glue, args.articles)):
        if not path.exists():
            raise UsageError(f"{str(path)!r} does not exist.")
    return args


def transplant_run(
    args: argparse.Namespace,
    part: str,
    name: str,
    seed: int,
    *flags: object,
    text: Path | None = None,
) -> Run:
    """A transplant and its evaluation; of options that are given twice, the last one counts."""
    out = args.out.absolute() / part / name / str(seed) / "model"
    encoding = name.partition("+")[0]
    module = [sys.executable, "-m", "examples.transplant"]
    paths = [args.source.absolute(), (text or args.text).absolute()]
    sizes = ["--length", LENGTH, "--batch-size", BATCH, "--seed", seed]
    sizes += ["--pairs", PAIRS if part == "pairs" else 0]
    train = [*module, *paths, "--position-encoding", encoding, "--out", out, *sizes, *flags]
    module[-1] += ".evaluate"
    evaluate = [*module, paths[0], out, args.glue.absolute()]
    settings = {"part": part, "name": name, "seed": seed}
    return Run(f"{part}/{name}/{seed}", settings, [train, evaluate], transplant_result)


def transplant_result(folder: Path) -> dict[str, Any]:
    """The curve, and the measures at its end."""
    curve = json.loads((folder / "model" / PROGRESS).read_text())
    return {"curve": curve, **json.loads((folder / "model" / NAME).read_text())}


def task_run(args: argparse.Namespace, name: str, model: Path, task: str, seed: int) -> Run:
    """The fine-tuning of a model of transformers."""
    part = f"tasks/{task}"
    out = args.out.absolute() / part / name / str(seed) / "model"
    command = [sys.executable, "-m", "examples.huggingface.finetune", args.glue.absolute(), task]
    command += [model, "--out", out, "--lr", RATE, "--epochs", EPOCHS[task], "--seed", seed]
    command += ["--max-positions", CUT, *(["--bf16"] if args.bf16 else [])]
    settings = {"part": "tasks", "task": task, "name": name, "seed": seed}
    return Run(f"{part}/{name}/{seed}", settings, [command], task_result)


def task_result(folder: Path) -> dict[str, Any]:
    """The score of the best epoch in percent."""
    found = json.loads((folder / "model" / "result.json").read_text())
    return {"score": found["score"], "epoch": found["epoch"]}


def long_runs(args: argparse.Namespace) -> list[Run]:
    """Transplants for long texts, and each way to read these."""
    text = args.out / "articles.txt"
    longest = ("--max-positions", LONGEST, "--updates", args.updates)
    runs = []
    for name, (length, flags) in EXTENDED.items():
        sizes = ("--length", length, "--batch-size", TOKENS // length)
        runs.append(transplant_run(args, "long", name, 1, *longest, *sizes, *flags, text=text))
    for name, ways in WAYS.items():
        model = model_of(args, "source" if name == "source" else f"long/{name}", 1)
        for way in ways:
            folder = f"ways/{name}/{way}"
            command = [sys.executable, "-m", "examples.transplant.long_texts"]
            command += [args.source.absolute(), model, args.articles.absolute()]
            command += [args.out.absolute() / folder / WAY, "--way", way, "--most", ARTICLES]
            settings = {"part": "ways", "name": name, "way": way}
            runs.append(Run(folder, settings, [command], way_result))
    return runs


def write_articles(folder: Path, out: Path) -> None:
    """Write a line for each article but the first `RESERVED`, unless the file exists."""
    if out.exists():
        return
    found = islice(article_texts(folder), RESERVED, None)
    with replacing(out) as aside:
        aside.write_text("\n".join(found) + "\n", encoding="utf-8")


def way_result(folder: Path) -> dict[str, Any]:
    """The measures by length."""
    return {"lengths": json.loads((folder / WAY).read_text())}


def converted_run(args: argparse.Namespace) -> Run:
    """SOURCE with its own positions, as a model of fairseq."""
    convert = [sys.executable, ROOT / "scripts" / "convert_checkpoint.py", "--from", "huggingface"]
    convert += [args.source.absolute(), "--out", args.out.absolute() / "converted" / "model"]
    return Run("converted", {"part": "converted"}, [convert], lambda folder: {})


def fairseq_run(args: argparse.Namespace, name: str, task: str, seed: int) -> Run:
    """The fine-tuning of `converted`, or a transplant, with the schedule of `task_run`."""
    if name == "source":
        key, model = f"fairseq/{task}/{seed}", args.out.absolute() / "converted" / "model"
    else:
        key, model = f"fairseq/{task}/{name}/{seed}", model_of(args, name, seed, RESULTS[1])
    out = args.out.absolute() / key
    glue = ROOT / "examples" / "glue"
    prepare = ["bash", glue / "preprocess_glue.sh", args.glue.absolute(), task, model]
    prepare += [out / "data", "--max-positions", CUT]
    read = read_split(args.glue, TASKS[task], TASKS[task].splits[0])
    updates = EPOCHS[task] * math.ceil(len(read.examples if read else ()) / EXAMPLES)
    train = ["bash", glue / "finetune.sh", out / "data" / f"{task}-bin", model / "model.pt", out]
    train += [f"optimization.lr=[{RATE}]", f"optimization.max_epoch={EPOCHS[task]}"]
    train += [f"optimization.max_update={updates}", f"common.seed={seed}"]
    train += [f"lr_scheduler.warmup_updates={int(0.06 * updates)}"]
    settings = {"part": "fairseq", "task": task, "name": name, "seed": seed}
    return Run(key, settings, [prepare, train], task_result)


def model_of(args: argparse.Namespace, name: str, seed: int, library: str = RESULTS[0]) -> Path:
    """The directory of a model that is fine-tuned by this library."""
    if name == "source":
        return args.source.absolute()
    # There is one of those that are trained for longer.
    of_seed = 1 if name.endswith(f"+{MORE}") else seed
    return args.out.absolute() / name / str(of_seed) / "model" / library


def plan(args: argparse.Namespace) -> list[Run]:
    """All runs, in order."""
    updates = ("--updates", args.updates)
    runs = [
        transplant_run(args, "encodings", name, seed, *updates)
        for seed in SEEDS
        for name in ENCODINGS
    ]
    runs += [
        transplant_run(args, "starts", f"tupe_r+{start}", seed, *updates, "--start", start)
        for seed in SEEDS
        for start in ("mean", "random")
    ]
    runs += [transplant_run(args, "pairs", "deberta", seed, *updates) for seed in SEEDS]
    runs += [
        transplant_run(args, part, f"tupe_r+{MORE}", 1, "--updates", MORE)
        for part in ("order", "pairs")
    ]
    runs += long_runs(args) if args.articles else []
    runs += [
        task_run(args, name, model_of(args, name, seed), task, seed)
        for task in args.tasks
        for seed in SEEDS
        for name in ("source", *TUNED)
    ]
    runs.append(converted_run(args))
    return runs + [
        fairseq_run(args, name, task, seed)
        for name in ("source", TUNED_THERE)
        for task in args.tasks
        for seed in SEEDS
    ]


def main(argv: list[str] | None = None) -> None:
    """See the module's docstring."""
    args = parse(argv)
    settings = {"source": args.source.name, "text": args.text.name, "updates": args.updates}
    with runner(args, settings, report) as execute:
        if args.articles:
            write_articles(args.articles, args.out / "articles.txt")
        execute(plan(args))


if __name__ == "__main__":
    script.run(main)
