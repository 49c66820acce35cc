"""A released BERT: conversion, GLUE's recipes, the hub and fairseq-validate."""

import json
import re

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
from examples.glue.tasks import TASKS  # noqa: E402
from tests import processes  # noqa: E402
from tests.fairseq_commands import PLUGIN  # noqa: E402
from tests.glue.samples import GLUE, write  # noqa: E402
from tests.interop.samples import run  # noqa: E402
from tests.tolerances import assert_close  # noqa: E402
from tupe_fairseq import TupeRobertaModel  # noqa: E402

HEAD = "sentence_classification_head"
PAIRS = [
    ("No weapons of mass destruction were found in Iraq yet.", "Weapons were found in Iraq."),
    ("A place of sorrow, after Pope John Paul II died.", "Pope Benedict XVI is the leader."),
    ("Herceptin was already approved to treat breast cancer.", "It can treat breast cancer."),
    ("Judie Vivian helps Vietnamese émigrés.", "The émigrés are from Viet Nam (1,000 of them)."),
    ("Oil prices fall back as Yukos threat lifted.", "Oil prices rise."),
]


@pytest.mark.slow
@pytest.mark.real_data
def test_doors(released_bert, bash, tmp_path):
    model, download = tmp_path / "model", tmp_path / "glue"
    run("--from", "huggingface", released_bert, model)
    assert_equal_to_transformers(TupeRobertaModel.from_pretrained(model), released_bert)

    labels = ("entailment", "not_entailment")
    rows = [f"{i}|{a}|{b}|{labels[i % 2]}" for i, (a, b) in enumerate(PAIRS * 3)]
    text = "\n".join(["index|sentence1|sentence2|label", *rows, ""])
    write(download, {f"RTE/{name}.tsv": text for name in ("train", "dev")})
    words = (download, "RTE", model, tmp_path / "data", "--max-positions", 64, "--workers", 1)
    done = bash(GLUE / "preprocess_glue.sh", *words)
    assert done.returncode == 0, done.stderr
    data, out = tmp_path / "data/RTE-bin", tmp_path / "out"
    # The rate makes both answers occur.
    short = (
        "optimization.max_update=4",
        "lr_scheduler.warmup_updates=1",
        "optimization.lr=[1e-3]",
    )
    words = (
        data,
        model / "model.pt",
        out,
        *short,
        "dataset.batch_size=4",
        "dataset.num_workers=0",
    )
    done = bash(GLUE / "finetune.sh", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    score = json.loads((out / "model/result.json").read_text())["score"]
    assert validated(data, out / "model/model.pt") == pytest.approx(score, abs=1e-3)
    assert predicted(out / "model") == pytest.approx(score, abs=1e-3)


@torch.no_grad()
def assert_equal_to_transformers(hub, folder):
    """Ids and features of texts and of pairs."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    theirs = transformers.AutoModel.from_pretrained(folder).eval()
    words = hub.task.source_dictionary
    special = {"<s>": "[CLS]", "</s>": "[SEP]", "<unk>": "[UNK]"}
    for texts in (*PAIRS, ("UPPER café — ☃",), ("",)):
        given = tokenizer(*texts, return_tensors="pt")
        tokens = hub.encode(*texts)
        symbols = [words[i] for i in tokens.tolist()]
        ids = [
            tokenizer.convert_tokens_to_ids(special[s]) if s in special else int(s)
            for s in symbols
        ]
        assert ids == given["input_ids"][0].tolist(), texts
        assert_close(hub.extract_features(tokens), theirs(**given).last_hidden_state)


def validated(data, checkpoint) -> float:
    """The accuracy that fairseq-validate logs."""
    flags = ("--task", "sentence_prediction", "--criterion", "glue_prediction", "--num-classes", 2)
    flags += ("--batch-size", 4, "--required-batch-size-multiple", 1, "--cpu", "--num-workers", 0)
    words = (data, "--user-dir", PLUGIN, "--path", checkpoint, *flags)
    done = processes.run("fairseq_cli.validate", *words)
    assert done.returncode == 0, done.stderr
    return float(re.findall(r"accuracy ([\d.]+)", done.stdout + done.stderr)[-1])


@torch.no_grad()
def predicted(folder) -> float:
    """The accuracy of the hub, in percent."""
    roberta = TupeRobertaModel.from_pretrained(folder)
    indices = [roberta.predict(HEAD, roberta.encode(*pair)).argmax() for pair in PAIRS * 3]
    answers = [TASKS["RTE"].labels[index] for index in indices]
    right = sum(
        answer == ("entailment", "not_entailment")[i % 2] for i, answer in enumerate(answers)
    )
    return 100 * right / len(answers)
