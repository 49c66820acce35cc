"""Evaluate the two models of the quickstart.

    python -m examples.quickstart.evaluate MODELS PRETRAINING_DATA TEXT OUT

MODELS is the folder of both models, PRETRAINING_DATA the binarised text, TEXT the output of
prepare.py. Writes OUT/results.json.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from fairseq import utils
from fairseq.data.data_utils import collate_tokens

from examples.shared import script
from tupe_fairseq import TupeRobertaModel

HEAD = "sentence_classification_head"
SENTENCE = "This is one of the <mask> films of the year."


@torch.inference_mode()
def masked_perplexity(roberta: Any, model: torch.nn.Module, split: str = "valid") -> float:
    """Perplexity of a model on masked tokens, as fairseq-validate measures it.

    Args:
        roberta: hub interface of a pre-trained model, whose task has the data and the masks; these
            are the same in every call.
        model: the model to evaluate, not necessarily roberta's.
        split: of the pre-training data.
    """
    task, model = roberta.task, model.eval()
    if split not in task.datasets:
        task.load_dataset(split)
    criterion = task.build_criterion(roberta.cfg.criterion)
    batches = task.get_batch_iterator(task.dataset(split), max_sentences=32)
    loss = targets = 0.0
    for batch in batches.next_epoch_itr(shuffle=False, set_dataset_epoch=False):
        batch = utils.move_to_cuda(batch) if roberta.device.type == "cuda" else batch
        summed, count, _ = criterion(model, batch)
        loss, targets = loss + float(summed), targets + int(count)
    return math.exp(loss / targets)


def untrained(roberta: Any) -> torch.nn.Module:
    """The model as fairseq-train builds it, before the first update."""
    utils.set_torch_seed(roberta.cfg.common.seed)
    return roberta.task.build_model(roberta.cfg.model).to(roberta.device)


@torch.inference_mode()
def classify(roberta: Any, sentences: list[str], batch_size: int = 64) -> list[str]:
    """The label of each sentence."""
    labels = roberta.task.label_dictionary
    padding = roberta.task.source_dictionary.pad()
    found: list[str] = []
    for start in range(0, len(sentences), batch_size):
        encoded = [roberta.encode(s) for s in sentences[start : start + batch_size]]
        scores = roberta.predict(HEAD, collate_tokens(encoded, padding))
        found += [labels[index + labels.nspecial] for index in scores.argmax(dim=1).tolist()]
    return found


def accuracy(found: list[str], labels: list[str]) -> float:
    """Percentage of correct labels.

    Raises:
        ValueError: the numbers of labels differ, or are 0.
    """
    if not labels:
        raise ValueError("there are no labels.")
    return 100 * sum(a == b for a, b in zip(found, labels, strict=True)) / len(labels)


def majority(labels: list[str]) -> str:
    """The most frequent label."""
    return Counter(labels).most_common(1)[0][0]


def read_lines(path: Path) -> list[str]:
    """The lines of a text file."""
    return path.read_text(encoding="utf-8").splitlines()


def evaluate(models: Path, data: Path, text: Path) -> dict[str, Any]:
    """Measure both models: perplexities, accuracies in percent, and words for a mask."""
    pretrained = TupeRobertaModel.from_pretrained(
        models / "pretrained", data_name_or_path=data.absolute()
    )
    sentiment = TupeRobertaModel.from_pretrained(models / "sentiment")
    if torch.cuda.is_available():
        pretrained, sentiment = pretrained.cuda(), sentiment.cuda()
    sentences, labels = read_lines(text / "test.input0"), read_lines(text / "test.label")
    always = majority(read_lines(text / "train.label"))
    return {
        "perplexity_before": masked_perplexity(pretrained, untrained(pretrained)),
        "perplexity_after": masked_perplexity(pretrained, pretrained.model),
        "accuracy": accuracy(classify(sentiment, sentences), labels),
        "majority_accuracy": accuracy([always] * len(labels), labels),
        "test_sentences": len(labels),
        "sentence": SENTENCE,
        "words": [(word.strip(), p) for _, p, word in pretrained.fill_mask(SENTENCE, topk=3)],
    }


def main() -> None:
    """See the module's docstring."""
    models, data, text, out = map(Path, sys.argv[1:])
    results = evaluate(models, data, text)
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    script.run(main)
