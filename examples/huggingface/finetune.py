"""Fine-tune a converted model on a task of GLUE with transformers' Trainer.

    python scripts/convert_checkpoint.py --to huggingface MODEL --lower-case yes --out hf
    python -m examples.huggingface.finetune GLUE_DIR SST-2 hf --out outputs/sst-2

GLUE_DIR is GLUE's download. The hyperparameters are those of examples/glue/finetune.sh. OUT gets
the model of the best epoch, which `convert_checkpoint.py --from huggingface` reads, and
result.json. After an interruption, the same command resumes at the last complete epoch. Needs
torch, transformers, accelerate, scikit-learn and scipy; no fairseq.
"""

import argparse
import json
import math
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from scipy.stats import pearsonr
from sklearn.metrics import accuracy_score, matthews_corrcoef

from examples.glue.readers import Example, find_task, read_split
from examples.glue.tasks import Task
from examples.shared import script
from tupe_fairseq import UsageError
from tupe_fairseq.base.files import replacing
from tupe_fairseq.base.kept_settings import NAME, keep

METRICS = {
    "accuracy": accuracy_score,
    "mcc": matthews_corrcoef,
    # 0 where all predictions are equal.
    "pearson": lambda true, predicted: float(np.nan_to_num(pearsonr(true, predicted).statistic)),
}
CHECKPOINTS = "checkpoints"
RESULT = "result.json"
#: What the way back to fairseq needs.
FAIRSEQ = (
    "dict.txt",
    "preprocessing.json",
    "sentencepiece.bpe.model",
    "encoder.json",
    "vocab.bpe",
)


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("glue", type=Path, metavar="GLUE_DIR", help="the GLUE download")
    parser.add_argument("task", metavar="TASK", help="CoLA, SST-2, ..., or your own")
    parser.add_argument("model", type=Path, metavar="MODEL", help="written by --to huggingface")
    out = "new directory to write, or that of an interrupted run"
    parser.add_argument("--out", type=Path, required=True, help=out)
    parser.add_argument("--lr", type=float, default=3e-5, help="peak learning rate")
    parser.add_argument("--epochs", type=int, default=10, help="5 for MNLI, QNLI and QQP")
    parser.add_argument("--batch-size", type=int, default=32, help="examples in a batch")
    parser.add_argument("--max-positions", type=int, help="default: those of the model")
    parser.add_argument("--seed", type=int, default=1)
    bf16 = "multiply in bf16 (default: fp16 on a GPU, fp32 elsewhere)"
    parser.add_argument("--bf16", action="store_true", help=bf16)
    return parser.parse_args(words)


def encoded(examples: list[Example], task: Task, tokenizer: Any, longest: int) -> list[dict]:
    """Ids and label of each example; the longer sentence is truncated first."""
    rows = []
    for sentences, label in examples:
        row = tokenizer(*sentences, truncation=True, max_length=longest)
        label = task.labels.index(label) if task.labels else float(label)
        rows.append({**row, "labels": label})
    return rows


def load(folder: Path, task: Task, seed: int) -> Any:
    """The model with a new head, and the dropout of finetune.sh as far as its class has it."""
    transformers.set_seed(seed)
    kind = "single_label_classification" if task.labels else "regression"
    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=True)
    dropout = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    dropout |= {"mlp_dropout": 0.1, "classifier_dropout": 0.0}
    return transformers.AutoModelForSequenceClassification.from_pretrained(
        folder,
        trust_remote_code=True,
        problem_type=kind,
        id2label=dict(enumerate(task.labels or ("similarity",))),
        label2id={label: i for i, label in enumerate(task.labels or ("similarity",))},
        **{name: rate for name, rate in dropout.items() if hasattr(config, name)},
    )


def settings(args: argparse.Namespace, updates: int) -> transformers.TrainingArguments:
    """Batches, schedule and selection of the best epoch as in finetune.sh."""
    on_gpu = torch.cuda.is_available()
    return transformers.TrainingArguments(
        output_dir=str(args.out.resolve() / CHECKPOINTS),
        seed=args.seed,
        per_device_train_batch_size=args.batch_size,
        per_device_eval_batch_size=args.batch_size,
        num_train_epochs=args.epochs,
        lr_scheduler_type="linear",
        warmup_steps=int(0.06 * updates),
        max_grad_norm=1.0,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        load_best_model_at_end=True,
        metric_for_best_model="score",
        greater_is_better=True,
        fp16=on_gpu and not args.bf16,
        bf16=args.bf16,
        use_cpu=args.bf16 and not on_gpu,  # Trainer does not take bf16 without it.
        report_to="none",
    )


def maximum_length(model: Path, tokenizer: Any) -> int:
    """Tokens that a model reads; a tokenizer without a maximum says 1e30."""
    config = transformers.AutoConfig.from_pretrained(model, trust_remote_code=True)
    return int(min(tokenizer.model_max_length, config.max_position_embeddings))


def finetune(args: argparse.Namespace) -> dict[str, Any]:
    """Fine-tune, and write the model of the best epoch.

    Returns:
        What result.json contains.

    Raises:
        UsageError: a file is missing or has another form, or OUT is not of an interrupted run.
    """
    task = find_task(args.glue, args.task)
    if (args.out / RESULT).exists():
        raise UsageError(f"--out {str(args.out)!r} holds a result already; name a new directory.")
    if args.out.exists() and not (args.out / NAME).exists():
        raise UsageError(f"--out {str(args.out)!r} exists already; name a new directory.")
    for name in ("config.json", "tokenizer.json"):
        if not (args.model / name).is_file():
            raise UsageError(f"MODEL is {args.model}, but has no {name}: see --to huggingface.")
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.model, trust_remote_code=True)
    longest = args.max_positions or maximum_length(args.model, tokenizer)
    train, valid = (read_split(args.glue, task, split) for split in task.splits[:2])
    if train is None or valid is None:
        raise UsageError(f"GLUE_DIR is {args.glue}, but lacks files of {task.name}.")
    data = [encoded(read.examples, task, tokenizer, longest) for read in (train, valid)]
    model = load(args.model, task, args.seed)

    def score(prediction: transformers.EvalPrediction) -> dict[str, float]:
        logits = prediction.predictions
        labels = prediction.label_ids
        predicted = logits.argmax(-1) if task.labels else np.squeeze(logits, -1)
        return {"score": 100 * float(METRICS[task.metric](labels, predicted))}

    # Unlike Trainer's own, fairseq's weight decay is on all parameters.
    optimizer = torch.optim.AdamW(
        model.parameters(), args.lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01, fused=True
    )
    trainer = transformers.Trainer(
        model,
        settings(args, args.epochs * math.ceil(len(data[0]) / args.batch_size)),
        transformers.DataCollatorWithPadding(tokenizer),
        *data,
        compute_metrics=score,
        optimizers=(optimizer, None),
    )
    paths = {name: str(getattr(args, name).resolve()) for name in ("glue", "model")}
    keep(args.out, {**vars(args), **paths, "out": None})
    trainer.train(resume_from_checkpoint=last_checkpoint(args.out / CHECKPOINTS))
    return save(args, task, trainer, tokenizer)


def last_checkpoint(folder: Path) -> str | None:
    """The newest one that was completed, which ends with the state of the Trainer."""
    complete = {}
    for path in folder.glob("checkpoint-*/trainer_state.json"):
        with suppress(ValueError):
            complete[json.loads(path.read_text())["global_step"]] = path.parent
    return str(complete[max(complete)]) if complete else None


def save(args: argparse.Namespace, task: Task, trainer: Any, tokenizer: Any) -> dict[str, Any]:
    """Write the model, and what the way back to fairseq needs."""
    trainer.save_model(args.out)
    tokenizer.save_pretrained(args.out)
    for name in FAIRSEQ:
        if (args.model / name).is_file():
            shutil.copy(args.model / name, args.out)
    epochs = [each for each in trainer.state.log_history if "eval_score" in each]
    best = max(epochs, key=lambda each: each["eval_score"])
    result = {"task": task.name, "metric": task.metric, "score": best["eval_score"]}
    result |= {"epoch": round(best["epoch"]), "updates": best["step"], "seed": args.seed}
    with replacing(args.out / RESULT) as aside:
        aside.write_text(json.dumps(result, indent=2) + "\n")
    shutil.rmtree(args.out / CHECKPOINTS)
    return result


if __name__ == "__main__":
    script.run(lambda: print(json.dumps(finetune(arguments()))))
