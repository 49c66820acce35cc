"""Train models on short sequences with many encodings, and measure them on longer ones.

    python -m examples.study.length DATA_BIN --out DIRECTORY --results FOLDER --workers 2

DATA_BIN is the output of examples/pretraining/prepare.sh. The parts, in this order:

    causal        language models, trained at --length tokens, measured at 1, 2, 4, 8 and 16 times
                  as many; without further training, `rope` also with each scaling of its
                  frequencies, and some encodings with a window
    masked        the same with masked models and --masked-length
    algorithmic   the tasks of algorithmic.py: strings of up to 40 symbols, tested to 200

An encoding may have options: `rope+randomize_positions=512`. All are trained with the first of
--seeds, and the causal models of --repeated with all. After an interruption the same command
continues; calls with further encodings, seeds or parts add to the report, which is written after
each model, and alone with --report. The report has the time of each part.
DIRECTORY gets

    PART/ENCODING/SEED/       checkpoints, log.txt, loss.json, SCALING.json, window.json
    PART/settings.json        settings of all models, which must not change between calls
    algorithmic/NAME.jsonl    results of an encoding

FOLDER gets report.md, results.json, length.png and algorithmic.png (matplotlib, the extra `viz`).
"""

import argparse
import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor
from tqdm import tqdm

from examples.shared import script
from examples.shared.jobs import keep, parse_with_flags, run_module, side_by_side
from examples.shared.locks import locked
from examples.study import algorithmic
from examples.study.length_measures import FACTORS, KINDS, Kind, measure, read_blocks
from examples.study.length_report import write_report
from examples.study.training import Training, keep_settings, run_rounds
from tupe_fairseq import UsageError
from tupe_fairseq.checkpoints.whole import newest_whole_checkpoint
from tupe_fairseq.files import replacing
from tupe_fairseq.plots import figure_class
from tupe_fairseq.position import POSITION_ENCODINGS

#: Default encodings of each part, and those that --repeated names by default. Three occur twice,
#: because sequences shorter than their defaults leave parts untrained: T5's last bucket begins at
#: 128, FIRE does not rescale texts below 512 tokens, CoPE has vectors for 64 positions.
ENCODINGS = {
    "causal": "none,sinusoidal,learned,rope,xpos,alibi,t5,tupe_r,kerple_log,fire,sandwich,fox,"
    "cope,t5+max_distance=32,fire+fire_threshold=16,cope+cope_positions=16",
    "masked": "learned,tupe_a,rope,alibi,learned+randomize_positions=512,"
    "rope+randomize_positions=512,t5,t5+max_distance=16",
    "algorithmic": "rope,rope+randomize_positions=2048,learned,"
    "learned+randomize_positions=2048,alibi,none,t5",
}
REPEATED = "sinusoidal,learned,rope,alibi,t5"
#: Scalings of `rope`. longrope is not among them: it needs divisors that a search finds.
SCALINGS = ("linear", "ntk", "dynamic", "yarn", "llama3")
#: Encodings without absolute positions that are also measured with a window, which hides the keys
#: at distances beyond the trained ones.
WINDOWED = ("none", "rope", "xpos", "alibi", "t5", "fire", "cope")
ROUNDS, VALIDATIONS = 4, 1


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; arguments after `--` are for fairseq-train.

    Raises:
        UsageError: an unknown part, encoding or option, no data, or numbers that do not fit.
    """
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add("data", type=Path, help="binarised text")
    add("--out", type=Path, required=True, help="directory of the models")
    add("--results", type=Path, help="directory of the report (default: OUT/report)")
    add("--parts", nargs="+", choices=ENCODINGS, default=list(ENCODINGS), help="default: all")
    for part, names in ENCODINGS.items():
        flag = "--encodings" if part == "causal" else f"--{part}-encodings"
        add(flag, dest=part, default=names, help="default: %(default)s")
    add("--seeds", type=int, nargs="+", default=[1, 2], help="default: 1 2")
    add("--repeated", help=f"causal models with all seeds (default: those of {REPEATED})")
    add("--length", type=int, default=64, help="tokens of causal models (default: 64)")
    add("--masked-length", type=int, default=32, help="tokens, with <s> (default: 32)")
    add("--updates", type=int, default=4800, help="of a causal model, 32 sequences each")
    add("--masked-updates", type=int, default=9600, help="of a masked model")
    add("--algorithmic-updates", type=int, default=3000, help="the paper: 10,000")
    add("--blocks", type=int, default=64, help="held-out text, in sequences of the longest length")
    add("--workers", type=int, default=1, help="models trained at the same time")
    add("--report", action="store_true", help="only write the report")
    args = parse_with_flags(parser, argv)
    args.results = args.results or args.out / "report"
    # The command that trains the models, also where this one only reports.
    given = sys.argv[1:] if argv is None else argv
    args.command = ["python", "-m", "examples.study.length"]
    args.command += [word for word in given if word != "--report"]
    check(args)
    return args


def check(args: argparse.Namespace) -> None:
    """Refuse arguments that do not fit, and split lists of encodings, in place."""
    for part in ENCODINGS:
        names = list(dict.fromkeys(getattr(args, part).split(",")))
        for name in names:
            check_encoding(args, part, name)
        setattr(args, part, names)
    names = REPEATED if args.repeated is None else args.repeated
    names = names.split(",") if names else []
    unknown = [name for name in names if name not in args.causal]
    if unknown and args.repeated is not None:
        raise UsageError(f"--repeated has {unknown[0]!r}, which --encodings does not have.")
    args.repeated = names
    if not (args.data / "dict.txt").is_file():
        raise UsageError(f"DATA_BIN is {str(args.data)!r}, but holds no dict.txt.")
    if min(args.workers, args.blocks, args.algorithmic_updates) < 1:
        raise UsageError("--workers, --blocks and --algorithmic-updates must be at least 1.")
    for flag in ("updates", "masked_updates"):
        if (given := getattr(args, flag)) < ROUNDS or given % ROUNDS:
            name = flag.replace("_", "-")
            raise UsageError(f"--{name} must be a multiple of {ROUNDS}, but is {given}.")
    # A trained table reaches the square of its rows.
    if min(args.length, args.masked_length) < FACTORS[-1]:
        raise UsageError(f"--length and --masked-length must be at least {FACTORS[-1]}.")


def check_encoding(args: argparse.Namespace, part: str, encoding: str) -> None:
    """Refuse an encoding that fails only in training, or only when it is measured."""
    name, options = algorithmic.options_of(encoding)
    if POSITION_ENCODINGS[name].causal_only and part != "causal":
        raise UsageError(f"--{part}-encodings has {name!r}, which causal models alone take.")
    drawn = options.get("randomize_positions", 0)
    longest = FACTORS[-1] * length_of(args, part) if part in KINDS else 0
    if 0 < drawn < longest:
        raise UsageError(f"{encoding!r} must draw from at least {longest} positions.")


def runs_of(args: argparse.Namespace, part: str) -> dict[str, tuple[str, int]]:
    """Encoding and seed of each run of a part, by its folder; the first seed of all first."""
    first, *others = args.seeds
    names = getattr(args, part)
    pairs = [(name, first) for name in names]
    again = [name for name in names if name in args.repeated and part == "causal"]
    pairs += [(name, seed) for seed in others for name in again]
    return {f"{name}/{seed}": (name, seed) for name, seed in pairs}


def flags_of(encoding: str, seed: int) -> list[str]:
    """Flags of a run; `rope+rope_theta=500` becomes --position-encoding and --rope-theta."""
    name, options = algorithmic.options_of(encoding)
    flags = ["--position-encoding", name, "--seed", str(seed)]
    for key, value in options.items():
        flag = key.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            flags += [f"--{flag}", str(value)]
    return flags


def training_of(args: argparse.Namespace, part: str) -> Training:
    """The models of a part."""
    kind, causal = KINDS[part], part == "causal"
    return Training(
        data=args.data,
        out=args.out / part,
        runs={name: flags_of(*run) for name, run in runs_of(args, part).items()},
        updates=args.updates if causal else args.masked_updates,
        rounds=ROUNDS,
        validations=VALIDATIONS,
        workers=args.workers,
        arch=kind.arch,
        tokens_per_sample=length_of(args, part),
        batch_size=32,
        lr=1e-3,
        # Each run has its own, after this one.
        seed=1,
        flags=[*kind.flags, "--max-valid-steps", "50", *args.flags],
    )


def length_of(args: argparse.Namespace, part: str) -> int:
    """The trained length of a part."""
    return args.length if part == "causal" else args.masked_length


def run_part(args: argparse.Namespace, part: str, lock: int) -> None:
    """Train and measure the models of a part, as many at a time as there are workers."""
    kind, training = KINDS[part], training_of(args, part)
    keep_settings(training)
    keep(training.out, {"blocks": args.blocks, "factors": [*FACTORS]}, "measuring.json")
    size = FACTORS[-1] * (training.tokens_per_sample - kind.special)
    blocks = read_blocks(args.data, size, args.blocks)
    names = list(training.runs)
    for start in range(0, len(names), args.workers):
        own = names[start : start + args.workers]
        runs = {name: training.runs[name] for name in own}
        run_rounds(training._replace(runs=runs), lock, lambda: None)
        for name in own:
            measure_run(training, kind, name, blocks)
        write_report(args)


def measure_run(training: Training, kind: Kind, name: str, blocks: Tensor) -> None:
    """Measure a model in all ways in which it has not been measured."""
    folder, length = training.out / name, training.tokens_per_sample
    checkpoint = newest_whole_checkpoint(folder)
    for way, changed in ways(folder.parent.name, length).items():
        path = folder / f"{way}.json"
        if not path.exists():
            found = measure(kind, checkpoint, training.data, length, blocks, changed)
            with replacing(path) as aside:
                aside.write_text(json.dumps(found) + "\n")


def ways(encoding: str, length: int) -> dict[str, dict[str, Any]]:
    """Options with which a model is measured, by the name of the file, at a trained length."""
    found: dict[str, dict[str, Any]] = {"loss": {}}
    if encoding == "rope":
        found |= {scaling: {"rope_scaling": scaling} for scaling in SCALINGS}
    if encoding in WINDOWED:
        found["window"] = {"attention_window": length - 1}
    return found


def run_algorithmic(args: argparse.Namespace, lock: int) -> None:
    """Train on strings and test; each encoding is a process and has a file."""
    out = args.out / "algorithmic"
    settings = {"updates": args.algorithmic_updates}
    keep(out, settings)

    def job(encoding: str) -> None:
        words: list[Any] = ["examples.study.algorithmic", "--out", out / f"{encoding}.jsonl"]
        words += ["--encodings", encoding, "--seeds", args.seeds[0]]
        words += ["--updates", args.algorithmic_updates]
        run_module(words, out / f"{encoding}.log", encoding, args.workers, lock)

    jobs = {encoding: partial(job, encoding) for encoding in args.algorithmic}
    with tqdm(total=len(jobs), unit="encoding") as progress:
        side_by_side(jobs, args.workers, progress, partial(write_report, args))


def main(argv: list[str] | None = None) -> None:
    """See the module's docstring."""
    args = parse(argv)
    # Waiting threads yield the core.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Without matplotlib, the first report would end the study.
    figure_class()
    if not args.report:
        with locked(args.out) as lock:
            for part in args.parts:
                if part == "algorithmic":
                    run_algorithmic(args, lock)
                else:
                    run_part(args, part, lock)
    write_report(args)
    print(f"report: {args.results / 'report.md'}")


if __name__ == "__main__":
    script.run(main)
