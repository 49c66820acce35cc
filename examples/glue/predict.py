"""Fine-tuned models -> a zip file for the GLUE leaderboard.

    python -m examples.glue.predict --data glue --out submission.zip outputs/glue/*/model

Each MODEL is a folder made by finetune.sh or sweep.py --keep-models, one for each task, in any
order. The model of MNLI predicts three test sets: matched, mismatched and diagnostic (AX).
"""

import argparse
import zipfile
from pathlib import Path
from typing import Any

import torch
from fairseq import utils
from tqdm import tqdm

from examples.glue.glue_submission import FILES, INCOMPLETE, check, lines_of
from examples.glue.pretrained import check_length, task_settings
from examples.glue.tasks import HIGHEST, LOWEST, TASKS, Split, Task
from examples.shared import script
from tupe_fairseq import TupeRobertaModel, UsageError
from tupe_fairseq.base.files import replacing
from tupe_fairseq.fairseq.commands import add_user_dir

HEAD = "sentence_classification_head"


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL", help="folder of a model")
    parser.add_argument("--data", type=Path, required=True, help="output of preprocess_glue.sh")
    parser.add_argument("--out", type=Path, required=True, help="zip file to write")
    parser.add_argument("--batch-size", type=int, default=32, help="batch size (default: 32)")
    add_user_dir(parser)
    return parser.parse_args(words)


def models_by_task(folders: list[Path]) -> dict[str, Path]:
    """The folder of each task's model.

    Raises:
        UsageError: not a folder of a model, or two models of one task.
    """
    found: dict[str, Path] = {}
    for folder in folders:
        task = task_settings(folder)["task"]
        if task not in TASKS:
            raise UsageError(f"{folder} is of {task}, which the leaderboard does not have.")
        if task in found:
            raise UsageError(f"two models are of {task}: {found[task]} and {folder}.")
        found[task] = folder
    return found


@torch.inference_mode()
def predict(roberta: Any, data: Path, split: Split, batch_size: int) -> list[str]:
    """Predictions for each example of a test set, in the set's order."""
    task = roberta.task
    task.cfg.data = str(data)
    dataset = task.load_dataset(split.name)
    batches = task.get_batch_iterator(dataset, max_sentences=batch_size)
    found = [""] * len(dataset)
    progress = batches.next_epoch_itr(shuffle=False, set_dataset_epoch=False)
    for batch in tqdm(progress, desc=split.submission, unit=" batches", disable=None):
        batch = utils.move_to_cuda(batch) if roberta.device.type == "cuda" else batch
        outputs, _ = roberta.model(
            **batch["net_input"], features_only=True, classification_head_name=HEAD
        )
        words = written(outputs, roberta)
        # fairseq shuffles; `id` is the row in the file.
        for index, word in zip(batch["id"].tolist(), words, strict=True):
            found[index] = word
    return found


def written(outputs: torch.Tensor, roberta: Any) -> list[str]:
    """Outputs of the head (B×classes, or B×1 for STS-B) in the leaderboard's format."""
    if roberta.task.cfg.regression_target:
        numbers = outputs.view(-1).float().clamp(LOWEST, HIGHEST).tolist()
        return [f"{number:.3f}" for number in numbers]
    labels = roberta.task.label_dictionary
    return [labels[index + labels.nspecial] for index in outputs.argmax(dim=1).tolist()]


def check_fit(roberta: Any, folder: Path, data: Path) -> None:
    """Refuse data made for another model, which fairseq would accept.

    Raises:
        UsageError: different dictionary or case, or examples that would be truncated.
    """
    if len({(place / "input0" / "dict.txt").read_bytes() for place in (folder, data)}) > 1:
        raise UsageError(f"{data} was made with another dictionary than {folder}.")
    made, given = (task_settings(place) for place in (folder, data))
    if made["lowercase"] != given["lowercase"]:
        case, other = ("in lower case" if s["lowercase"] else "cased" for s in (given, made))
        raise UsageError(f"{data} is {case}, but the data of {folder} was {other}.")
    check_length(data, roberta.task.cfg.max_positions, folder)


def files_of(task: Task, folder: Path, data: Path, batch_size: int) -> dict[str, str]:
    """The files of a task for the submission, from the available test sets."""
    settings = task_settings(data)
    splits = [split for split in task.tests if split.name in settings["examples"]]
    if not splits:
        print(f"{task.name}: no test set in {data}")
        return {}
    roberta = TupeRobertaModel.from_pretrained(folder)
    check_fit(roberta, folder, data)
    roberta = roberta.cuda() if torch.cuda.is_available() else roberta
    return {
        split.submission: lines_of(predict(roberta, data, split, batch_size)) for split in splits
    }


def main(args: argparse.Namespace) -> None:
    """See the module's docstring."""
    texts: dict[str, str] = {}
    for name, folder in models_by_task(args.models).items():
        data = args.data.absolute() / f"{name}-bin"
        texts |= files_of(TASKS[name], folder, data, args.batch_size)
    if not texts:
        raise UsageError(f"{args.data} holds no test set of these models' tasks.")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(args.out) as aside:
        with zipfile.ZipFile(aside, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in filter(texts.get, FILES):
                archive.writestr(name, texts[name])
        faults, missing = check(aside)
        if faults:
            raise UsageError(f"{args.out} would be refused: {'; '.join(faults)}.")
    print(f"{args.out}: {', '.join(name for name in FILES if name in texts)}")
    if missing:
        print(f"{INCOMPLETE}: {', '.join(missing)}")


if __name__ == "__main__":
    script.run(lambda: main(arguments()))
