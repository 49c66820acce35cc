"""The paper's study at a scale that fits the machine: pre-training, GLUE, learned positions.

    python -m examples.study.study --text wiki/AA --glue glue_data --out outputs/study

TEXT is an argument of examples/pretraining/prepare.sh, the GLUE folder one of
examples/glue/preprocess_glue.sh; plan.py has the settings of each scale. OUT gets

    data/                 the text, binarised, and its vocabulary
    pretraining/          MODEL/SEED: checkpoints and log.txt
    glue-data/, glue/     the tasks, binarised; the sweep of each
    models/               MODEL-SEED: input of TupeRobertaModel.from_pretrained
    journal.json          commands and times
    report/               report.md, its figures, results.json (--results changes the folder)

After an interruption the same command continues. The report is written after each step.
"""

import argparse
import json
import os
import shlex
import shutil
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import torch

from examples.shared import script
from examples.shared.jobs import call, keep
from examples.shared.locks import locked
from examples.shared.markdown import ROOT
from examples.study.plan import MODELS, SCALES, Finetuning
from examples.study.report import write_report
from examples.study.training import Training, keep_settings, run_rounds
from tupe_fairseq import UsageError
from tupe_fairseq.checkpoints.whole import newest_whole_checkpoint
from tupe_fairseq.files import replacing
from tupe_fairseq.machine import cores

GLUE = ROOT / "examples/glue"
PREPARE = ROOT / "examples/pretraining/prepare.sh"
#: Seconds between two updates of the journal; a kill loses as much time.
TICK = 10


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line, and add the plan of its scale."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add("--text", nargs="+", type=Path, required=True, help="text files or folders of them")
    add("--glue", type=Path, required=True, help="the GLUE download")
    add("--out", type=Path, required=True, help="directory of all output")
    add("--scale", choices=SCALES, default="tiny", help="see plan.py (default: tiny)")
    add("--workers", type=int, default=0, help="processes (default: number of GPUs or cores)")
    add("--models", nargs="+", choices=MODELS, default=list(MODELS), help="default: all")
    add("--seeds", nargs="+", type=int, help="of pre-training (default: the scale's)")
    add("--tasks", nargs="+", help="of GLUE (default: the scale's)")
    add("--results", type=Path, help="directory of the report (default: OUT/report)")
    add("--report", action="store_true", help="only write the report")
    args = parser.parse_args(argv)
    args.plan = plan = SCALES[args.scale]
    args.seeds = args.seeds or list(plan.seeds)
    args.tasks = args.tasks or list(plan.tasks)
    if unknown := [task for task in args.tasks if task not in plan.tasks]:
        raise UsageError(f"--tasks has {unknown[0]!r}; the scale has {', '.join(plan.tasks)}.")
    for name, paths in (("--text", args.text), ("--glue", [args.glue])):
        if missing := [path for path in paths if not path.exists()]:
            raise UsageError(f"{name} is {str(missing[0])!r}, but there is no such path.")
    if args.workers < 0:
        raise UsageError(f"--workers must be at least 1, but is {args.workers}.")
    args.workers = args.workers or torch.cuda.device_count() or cores()
    args.results = args.results or args.out / "report"
    args.command = [
        "python",
        "-m",
        "examples.study.study",
        *(sys.argv[1:] if argv is None else argv),
    ]
    return args


class Journal:
    """Commands and times of the steps, summed over all calls of the study."""

    def __init__(self, path: Path):
        self.path = path
        self.steps = json.loads(path.read_text()) if path.exists() else {}

    @contextmanager
    def step(self, name: str, command: str):
        """Add the time of the block to a step, periodically."""
        entry = self.steps.setdefault(name, {"seconds": 0.0})
        entry["command"] = command
        ended = threading.Event()

        def tick() -> None:
            last = time.monotonic()
            while not ended.is_set():
                ended.wait(TICK)
                now = time.monotonic()
                entry["seconds"] = round(entry["seconds"] + now - last, 1)
                last = now
                self._write()

        thread = threading.Thread(target=tick)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _write(self) -> None:
        with replacing(self.path) as aside:
            aside.write_text(json.dumps(self.steps, indent=1))


class Study:
    """The steps, each of which continues an earlier call."""

    def __init__(self, arguments: argparse.Namespace):
        self.arguments, self.plan, self.out = arguments, arguments.plan, arguments.out
        self.journal = Journal(self.out / "journal.json")
        self.runs = {
            f"{model}/{seed}": [*MODELS[model][1], "--seed", str(seed)]
            for seed in arguments.seeds
            for model in arguments.models
        }

    def report(self) -> None:
        """Write the report of the results so far."""
        write_report(self.arguments, self.journal.steps)

    def call(self, step: str, *words: object) -> None:
        """Run a command as a step.

        Raises:
            UsageError: it failed.
        """
        command = [*map(str, words)]
        told = shlex.join(["python" if word == sys.executable else word for word in command])
        print(f"$ {told}", flush=True)
        with self.journal.step(step, told):
            status = call(command).returncode
        if status:
            raise UsageError(f"{step} failed (status {status}): {told}")

    def prepare(self) -> None:
        """Text -> data/bin."""
        # A change of the data would otherwise remain unnoticed by the trained models.
        made_of = {"text": [*map(str, self.arguments.text)], "vocabulary": self.plan.vocabulary}
        keep(self.out, made_of, "made_of.json")
        flags = ("--sentencepiece", self.plan.vocabulary, "--valid-share", self.plan.valid_share)
        where = ("--out", self.out / "data", "--workers", self.arguments.workers)
        self.call("data", "bash", PREPARE, *where, *flags, *self.arguments.text)

    def training(self) -> Training:
        """The pre-training of all models."""
        plan, shared = self.plan, self.plan._asdict()
        positions = max(plan.tokens_per_sample, plan.glue_tokens)
        flags = ["--max-positions", str(positions), "--max-valid-steps", str(plan.valid_steps)]
        flags += [*plan.flags, *(["--fp16"] if plan.fp16 and torch.cuda.is_available() else [])]
        own = {
            "data": self.out / "data/bin",
            "out": self.out / "pretraining",
            "runs": self.runs,
            "workers": self.arguments.workers,
            # The flags of each run set its own.
            "seed": plan.seeds[0],
            "flags": flags,
        }
        return Training(**{key: shared[key] for key in Training._fields if key not in own}, **own)

    def pretrain(self, lock: int) -> None:
        """Train all models in rounds, then make the folder of each that the hub loads."""
        training = self.training()
        keep_settings(training)
        with self.journal.step("pre-training", "see pretraining/settings.json"):
            run_rounds(training, lock, self.report)
        for name in self.runs:
            self.collect(name)

    def collect(self, run: str) -> None:
        """Write models/MODEL-SEED: the trained model, its dictionary and vocabulary."""
        folder, data = self.model(run), self.out / "data/bin"
        folder.mkdir(parents=True, exist_ok=True)
        checkpoint = newest_whole_checkpoint(self.out / "pretraining" / run)
        sources = {"model.pt": checkpoint, "dict.txt": data / "dict.txt"}
        sources["sentencepiece.bpe.model"] = data / "sentencepiece.bpe.model"
        for name, source in sources.items():
            with replacing(folder / name) as aside:
                try:
                    os.link(source, aside)
                except OSError:
                    shutil.copy(source, aside)

    def model(self, run: str) -> Path:
        """Folder of a trained model."""
        return self.out / "models" / run.replace("/", "-")

    def finetune_all(self) -> list[UsageError]:
        """Fine-tune on all tasks, with a report after each; return the errors."""
        failed = []
        for task in self.arguments.tasks:
            try:
                self.finetune(task)
            except UsageError as error:
                failed.append(error)
            self.report()
        return failed

    def finetune(self, task: str) -> None:
        """Fine-tune all models on a task."""
        if not (self.arguments.glue / task).is_dir():
            print(f"{task}: not in {self.arguments.glue}")
            return
        workers = ("--workers", self.arguments.workers)
        data, bpe = self.out / "glue-data", self.out / "data/bin"
        longest = ("--max-positions", self.plan.glue_tokens)
        where = (self.arguments.glue, task, bpe, data)
        self.call(f"{task} data", "bash", GLUE / "preprocess_glue.sh", *where, *longest, *workers)
        models = [f"{run.replace('/', '-')}={self.model(run) / 'model.pt'}" for run in self.runs]
        sweep = ["--data", data, "--out", self.out / "glue" / task, "--tasks", task, *workers]
        sweep += ["--models", *models, "--rates", *self.plan.rates]
        sweep += ["--seeds", *self.plan.finetuning_seeds]
        sweep += overrides(self.plan.tasks[task])
        self.call(task, sys.executable, "-m", "examples.glue.sweep", *sweep)


def overrides(finetuning: Finetuning | None) -> list[str]:
    """Overrides of a task's YAML file; 6 % of the updates are warm-up, as in the paper."""
    if finetuning is None:
        return []
    changed = {
        "optimization.max_update": finetuning.updates,
        "lr_scheduler.warmup_updates": max(1, round(0.06 * finetuning.updates)),
        "dataset.batch_size": finetuning.batch,
        "dataset.num_workers": 0,
    }
    return ["--overrides", *(f"{key}={value}" for key, value in changed.items())]


def main(argv: list[str] | None = None) -> None:
    """See the module's docstring."""
    arguments = parse(argv)
    # Waiting threads yield the core.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    study, failed = Study(arguments), []
    if arguments.report:
        study.report()
    else:
        with locked(arguments.out) as lock:
            study.prepare()
            study.pretrain(lock)
            failed = study.finetune_all()
    print(f"report: {arguments.results / 'report.md'}")
    if failed:
        raise UsageError("; ".join(map(str, failed))) from failed[0]


if __name__ == "__main__":
    script.run(main)
