"""Trained in transformers, read by --from huggingface, and trained on by fairseq-train."""

import math
import shutil
from pathlib import Path

import pytest
import torch
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from tests import fairseq_commands as commands
from tests.interop.samples import run

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
import tupe_fairseq.huggingface  # noqa: E402, F401 (the Auto classes then know it)

#: No dropout, and an update too small to change the loss.
STILL = ("--lr", 1e-20, "--max-update", 1, "--dropout", 0, "--attention-dropout", 0)


def batches(*flags: object) -> dict[str, list[dict[str, torch.Tensor]]]:
    """The batches of both splits that a fairseq-train with these flags reads, for transformers."""
    parser = options.get_training_parser()
    words = [str(flag) for flag in (*flags, *commands.COMMON, *commands.SMALL)]
    config = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, words))
    task, found = tasks.setup_task(config.task), {}
    for split in ("train", "valid"):
        task.load_dataset(split)
        iterator = task.get_batch_iterator(task.dataset(split), max_sentences=16, seed=1, epoch=1)
        samples = list(iterator.next_epoch_itr(shuffle=False))
        found[split] = [for_transformers(sample, "masked_lm" in flags) for sample in samples]
    return found


def for_transformers(sample: dict, masked: bool) -> dict[str, torch.Tensor]:
    """A batch of fairseq's by the names of transformers."""
    ids, labels = sample["net_input"]["src_tokens"], sample["target"]
    labels = labels.masked_fill(labels == 1, -100) if masked else labels.view(-1)
    return {"input_ids": ids, "attention_mask": ids.ne(1).long(), "labels": labels}


@torch.no_grad()
def bits(model, samples: list[dict[str, torch.Tensor]]) -> float:
    """The mean loss, in fairseq's unit."""
    counts = [int((sample["labels"] != -100).sum()) for sample in samples]
    losses = [model.eval()(**sample).loss.item() for sample in samples]
    total = sum(loss * count for loss, count in zip(losses, counts, strict=True))
    return total / sum(counts) / math.log(2)


def train_there(model, data: dict, folder: Path, dictionary: Path) -> float:
    """Some updates in transformers; saves the model and returns its loss on the split valid."""
    before = bits(model, data["valid"])
    optimizer = torch.optim.AdamW(model.train().parameters(), 5e-3)
    for sample in data["train"] * 8:
        optimizer.zero_grad()
        model(**sample).loss.backward()
        optimizer.step()
    after = bits(model, data["valid"])
    assert abs(after - before) > 0.05
    model.save_pretrained(folder)
    shutil.copy(dictionary, folder / "dict.txt")
    return after


@pytest.fixture(params=["tupe_r", "learned"])
def pretrained(request, trained, tmp_path) -> Path:
    """A directory of transformers, of its own RoBERTa or of our classes."""
    directory = trained("--position-encoding", request.param)
    run("--to", "huggingface", directory, tmp_path / "hf")
    return tmp_path / "hf"


def back(folder: Path) -> tuple[object, ...]:
    """Flags that continue from the checkpoint by --from huggingface --check."""
    out = folder.with_name("back")
    run("--from", "huggingface", folder, out, "--check")
    learned = transformers.AutoConfig.from_pretrained(folder).model_type == "roberta"
    encoding = "learned" if learned else "tupe_r"
    return ("--position-encoding", encoding, "--restore-file", out / "model.pt", *STILL)


def loss_of(checkpoint: Path) -> float:
    """The validation loss that a training has recorded."""
    return torch.load(checkpoint, weights_only=False)["extra_state"]["val_loss"]


def test_masked_lm(pretrained, toy_masked_lm_data, tmp_path):
    data = batches(
        *(toy_masked_lm_data, "--task", "masked_lm", "--criterion", "masked_lm"),
        *("--tokens-per-sample", 64),
    )
    model = transformers.AutoModelForMaskedLM.from_pretrained(pretrained)
    there = train_there(model, data, tmp_path / "more", pretrained / "dict.txt")
    flags = back(tmp_path / "more")
    here = commands.pretrain(toy_masked_lm_data, tmp_path / "run", *flags)
    assert loss_of(here) == pytest.approx(there, abs=2e-3)


@pytest.mark.parametrize("kind", ["mnli", "regression"])
def test_classifier_and_regression(pretrained, toy_sentence_data, tmp_path, kind):
    classes = 1 if kind == "regression" else 3
    task = ["--num-classes", classes, *(["--regression-target"] if classes == 1 else [])]
    criterion = ("--task", "sentence_prediction", "--criterion", "sentence_prediction")
    more = ("--max-positions", 64, "--init-token", 0, "--separator-token", 2)
    data = batches(toy_sentence_data[kind], *criterion, *more, *task)
    auto = transformers.AutoModelForSequenceClassification
    model = auto.from_pretrained(pretrained, num_labels=classes)
    there = train_there(model, data, tmp_path / "more", pretrained / "dict.txt")
    flags = back(tmp_path / "more")
    here = commands.finetune(toy_sentence_data[kind], tmp_path / "run", *task, *flags)
    assert loss_of(here) == pytest.approx(there, abs=2e-3)
