"""Evaluate the two models of the quickstart.

    python -m examples.quickstart.evaluate MODELS TEXT OUT

MODELS is the folder of both models, TEXT the output of prepare.py. Writes OUT/results.json.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from fairseq.data.data_utils import collate_tokens

from examples.shared import script
from examples.study.measures import without_model
from tupe_fairseq import TupeRobertaModel

HEAD = "sentence_classification_head"
#: In lower case, as the text of pre-training. A model of this size fills them well.
MASKS = (
    "it is one of <mask> best films.",
    "the <mask> is great.",
    "there <mask> a lot of things to like.",
    "you don't have <mask> see it.",
)


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
    """Percentage of correct labels."""
    return 100 * sum(a == b for a, b in zip(found, labels, strict=True)) / len(labels)


def evaluate(models: Path, text: Path) -> dict[str, Any]:
    """Measure both models: accuracies in percent, and words for masks."""
    pretrained = TupeRobertaModel.from_pretrained(models / "pretrained")
    sentiment = TupeRobertaModel.from_pretrained(models / "sentiment")
    if torch.cuda.is_available():
        pretrained = pretrained.cuda()
        sentiment = sentiment.cuda()
    names = ("test.input0", "test.label", "train.label")
    files = ((text / name).read_text(encoding="utf-8").splitlines() for name in names)
    sentences, labels, trained = files
    return {
        "accuracy": accuracy(classify(sentiment, sentences), labels),
        "majority_accuracy": without_model("accuracy", trained, labels),
        "test_sentences": len(labels),
        "masks": {
            sentence: {piece.strip(): p for _, p, piece in pretrained.fill_mask(sentence, topk=3)}
            for sentence in MASKS
        },
    }


def main() -> None:
    """See the module's docstring."""
    models, text, out = map(Path, sys.argv[1:])
    results = evaluate(models, text)
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    script.run(main)
