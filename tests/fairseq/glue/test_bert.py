"""GLUE with BERT's tokenizer.json and token types: from the files to predictions."""

import json
import shutil
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from fairseq.data import indexed_dataset

pytest.importorskip("tokenizers", reason="transformers is not installed")
from examples.glue import predict, preprocess
from examples.glue.pretrained import overrides
from examples.glue.tasks import TASKS, Split
from tests.fairseq.glue.samples import write
from tests.fairseq.hub.samples import VOCABULARY, bert, directory
from tests.fairseq_commands import finetune
from tupe_fairseq import TupeRobertaModel, UsageError

HEAD = "sentence_classification_head"
WORDS = ["The", "cat", "Sat", "on", "mat", "walking", "cats", "RAN", "unknown"]
#: Pairs whose order matters to types, in upper and lower case.
PAIRS = [
    (" ".join(WORDS[i % 9] for i in range(n, n + 4)), " ".join(WORDS[-n % 9 :][:3]))
    for n in range(40)
]


def glue(folder: Path) -> Path:
    """RTE of these pairs."""
    header = "index|sentence1|sentence2|label"
    labels = ("entailment", "not_entailment")
    rows = [f"{i}|{a}|{b}|{labels[i % 3 % 2]}" for i, (a, b) in enumerate(PAIRS)]
    text = "\n".join([header, *rows, ""])
    return write(folder, {f"RTE/{name}.tsv": text for name in ("train", "dev")})


def binarised(download: Path, bpe: Path, out: Path) -> Path:
    more = {"max_positions": 24, "lowercase": None, "workers": 1}
    out.mkdir()
    preprocess.preprocess(Namespace(glue=download, task="RTE", bpe=bpe, out=out, **more))
    return out


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The download, the pre-trained directory, the data and the fine-tuned directory."""
    root = tmp_path_factory.mktemp("bert")
    model = directory(root / "model", bert(VOCABULARY), types=2)
    data = binarised(glue(root / "glue"), model, root / "RTE-bin")
    sizes = ("--encoder-ffn-embed-dim", 48, "--max-positions", 24, "--type-vocab-size", 2)
    flags = ("--position-encoding", "learned", "--num-classes", 2, "--lr", 0.01, *sizes)
    flags += ("--finetune-from-model", model / "model.pt", "--criterion", "glue_prediction")
    shutil.copytree(data, root / "tuned")
    shutil.copy(finetune(data, root / "run", *flags), root / "tuned/model.pt")
    return root


def test_data_hold_the_ids_of_the_tokenizer(trained):
    hub = TupeRobertaModel.from_pretrained(trained / "model")
    rows = indexed_dataset.make_dataset(str(trained / "RTE-bin/input1/train"), "mmap")
    for (_, text), ids in zip(PAIRS, rows, strict=True):
        assert ids.tolist() == hub.encode(text)[1:].tolist(), text
    report = (trained / "RTE-bin/report.txt").read_text()
    assert report.startswith("RTE, with the case of tokenizer.json")
    assert json.loads((trained / "RTE-bin/task.json").read_text())["lowercase"] is False


def test_the_recipe_separates_sentences_as_bert_does(trained):
    found = overrides(trained / "RTE-bin", trained / "model/model.pt")
    assert {"task.separator_token=null", "+model.type_vocab_size=2"} <= set(found)


def test_hub_reads_and_predicts_as_the_training_validates(trained):
    roberta = TupeRobertaModel.from_pretrained(trained / "tuned")
    split = Split("valid", (), len(PAIRS), "RTE.tsv")
    words = predict.predict(roberta, trained / "RTE-bin", split, 7)
    for example in roberta.task.dataset("valid"):
        pair = PAIRS[example["id"]]
        tokens = roberta.encode(*PAIRS[example["id"]])
        assert tokens.tolist() == example["net_input.src_tokens"].tolist(), pair
        assert tokens.eq(2).sum() == 2, "one </s> after each sentence"
        with torch.no_grad():
            index = roberta.predict(HEAD, tokens).argmax()
        assert TASKS["RTE"].labels[index] == words[example["id"]]


def test_a_tokenizer_of_another_model_is_refused(trained, tmp_path):
    bpe = shutil.copytree(trained / "model", tmp_path / "bpe")
    bert([*reversed(VOCABULARY)]).save(str(bpe / "tokenizer.json"))
    with pytest.raises(UsageError, match=r"is not the tokenizer of dict\.txt"):
        binarised(trained / "glue", bpe, tmp_path / "out")
