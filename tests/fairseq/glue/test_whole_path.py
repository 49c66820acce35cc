"""Official files -> binarised -> fine-tuned -> predictions of the test sets, and the hub."""

import json
import shutil
import zipfile
from argparse import Namespace
from pathlib import Path

import pytest
import torch

from examples.glue import predict, preprocess
from examples.glue.glue_submission import check
from examples.glue.tasks import TASKS
from examples.glue.tokenizer import Tokenizer
from tests import toy_data
from tests.fairseq.glue.samples import GLUE, OFFICIAL, write, write_tokenizer
from tests.fairseq_commands import finetune, pretrain
from tests.pages import blocks
from tupe_fairseq import TupeRobertaModel, UsageError

HEAD = "sentence_classification_head"
TEXT = "the cat sat on a mat . what did it see ? no bird there"
WORDS = TEXT.split()


def sentence(number: int, length: int = 6) -> str:
    """Different for every number, with a capital."""
    return " ".join(WORDS[(number // 7**i + i) % len(WORDS)] for i in range(length)).capitalize()


def pairs(count: int, header: str, labels: list[str] | None, length: int = 6) -> str:
    texts = ((sentence(i, length), sentence(3 * i + 1, length)) for i in range(count))
    rows = [f"{i}|{first}|{second}" for i, (first, second) in enumerate(texts)]
    if labels:
        rows = [f"{row}|{labels[i % len(labels)]}" for i, row in enumerate(rows)]
    return "\n".join([header, *rows, ""])


@pytest.fixture(scope="module")
def glue(tmp_path_factory) -> Path:
    """WNLI with as many examples as the official one has, MNLI and STS-B as samples."""
    labelled = "index|sentence1|sentence2|label"
    unlabelled = "index|sentence1|sentence2"
    texts = OFFICIAL | {
        "WNLI/train.tsv": pairs(635, labelled, ["0", "1"]),
        "WNLI/dev.tsv": pairs(71, labelled, ["1", "0"]),
        "WNLI/test.tsv": pairs(146, unlabelled, None),
        "STS-B/test.tsv": pairs(40, unlabelled, None),
        "diagnostic/diagnostic.tsv": pairs(40, unlabelled, None),
    }
    return write(tmp_path_factory.mktemp("glue"), texts)


@pytest.fixture(scope="module")
def bpe(tmp_path_factory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("bpe"), TEXT)


@pytest.fixture(scope="module")
def text(bpe, tmp_path_factory) -> Path:
    """Text of that tokenizer, binarised."""
    folder = tmp_path_factory.mktemp("text")
    tokenizer = Tokenizer(bpe)
    lines = [tokenizer.bpe.encode(sentence(i, 12).lower()) for i in range(80)]
    for split in ("train", "valid"):
        toy_data.write_split(folder, split, lines, tokenizer.dictionary)
    return folder


@pytest.fixture(scope="module")
def checkpoint(text, tmp_path_factory) -> Path:
    """Pre-trained with an encoding that has options."""
    encoding = ("--position-encoding", "t5", "--num-buckets", 16, "--max-distance", 32)
    return pretrain(text, tmp_path_factory.mktemp("pretrained"), *encoding, "--max-update", 2)


def binarised(glue: Path, bpe: Path, task: str, out: Path, longest: int = 64) -> Path:
    (out / f"{task}-bin").mkdir(parents=True)
    others = {
        "max_positions": longest,
        "lowercase": None,
        "workers": 1,
        "out": out / f"{task}-bin",
    }
    preprocess.preprocess(Namespace(glue=glue, task=task, bpe=bpe, **others))
    return out / f"{task}-bin"


def finetuned(task: str, data: Path, checkpoint: Path, run: Path) -> Path:
    """A folder as finetune.sh leaves it, from fairseq-train in process."""
    outputs = len(TASKS[task].labels)
    flags = ["--num-classes", outputs or 1, "--criterion", "glue_prediction"]
    flags += [] if outputs else ["--regression-target"]
    flags += ["--position-encoding", "t5", "--num-buckets", 16, "--max-distance", 32]
    model = run / "model"
    shutil.copytree(data, model)
    trained = finetune(data, run, *flags, "--finetune-from-model", checkpoint)
    shutil.copy(trained, model / "model.pt")
    return model


@pytest.mark.parametrize("name", ["STS-B", "MNLI"])
def test_predictions_are_the_hubs(name, glue, bpe, checkpoint, tmp_path):
    """In the order of the file, although fairseq shuffles and batches."""
    data = binarised(glue, bpe, name, tmp_path / "data")
    model = finetuned(name, data, checkpoint, tmp_path / "run")
    texts = predict.files_of(TASKS[name], model, data, batch_size=7)
    assert list(texts) == [split.submission for split in TASKS[name].tests]
    roberta = TupeRobertaModel.from_pretrained(model)
    for split in TASKS[name].tests:
        examples = preprocess.read_split(glue, TASKS[name], split).examples
        rows = texts[split.submission].splitlines()[1:]
        assert len(rows) == len(examples)
        for number, (row, example) in enumerate(zip(rows, examples, strict=True)):
            index, word = row.split("\t")
            assert int(index) == number
            tokens = roberta.encode(*example.sentences)
            with torch.no_grad():
                outputs = roberta.predict(HEAD, tokens, return_logits=True)[0]
            if name == "STS-B":
                assert float(word) == pytest.approx(outputs.clamp(0, 5).item(), abs=2e-3)
            else:
                assert word == TASKS[name].labels[outputs.argmax()]


def test_similarities_stay_between_0_and_5():
    roberta = Namespace(task=Namespace(cfg=Namespace(regression_target=True)))
    assert predict.written(torch.tensor([[-1.0], [2.3456], [7.0]]), roberta) == [
        "0.000",
        "2.346",
        "5.000",
    ]


FINETUNE = GLUE / "finetune.sh"


@pytest.mark.slow
def test_from_official_files_to_a_checked_zip(glue, bpe, checkpoint, bash, tmp_path, capsys):
    # Hydra would take such names for its own signs.
    place = tmp_path / "größe=1, (it's)"
    data = binarised(glue, bpe, "WNLI", place / "data")
    short = ("optimization.max_update=3", "lr_scheduler.warmup_updates=1")
    # As --from huggingface writes it for a classifier; its head is replaced.
    kept = {"headless": True, "problem_type": "regression"}
    shutil.copytree(checkpoint.parent, place / "pretrained")
    checkpoint = place / "pretrained" / checkpoint.name
    (place / "pretrained/transformers.json").write_text(json.dumps(kept))
    words = (data, checkpoint, place / "run", *short, "dataset.num_workers=0")
    done = bash(FINETUNE, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    model = place / "run" / "model"
    result = json.loads((model / "result.json").read_text())
    assert (result["task"], result["metric"], result["updates"]) == ("WNLI", "accuracy", 3)
    assert result["metrics"].keys() == {"accuracy", "f1", "mcc"}
    assert json.loads((model / "transformers.json").read_text()) == {"headless": True}
    # The score is that of the model kept, counted by hand.
    roberta = TupeRobertaModel.from_pretrained(model)
    (valid,) = (split for split in TASKS["WNLI"].splits if split.name == "valid")
    examples = preprocess.read_split(glue, TASKS["WNLI"], valid).examples
    found = predict.predict(roberta, data, valid, 16)
    right = sum(word == example.label for word, example in zip(found, examples, strict=True))
    assert result["score"] == pytest.approx(100 * right / len(examples), abs=1e-3)
    args = ["--data", str(data.parent), "--out", str(tmp_path / "s.zip"), str(model)]
    predict.main(predict.arguments(args))
    assert "missing, but the leaderboard requires all" in capsys.readouterr().out
    faults, missing = check(tmp_path / "s.zip")
    assert not faults
    assert len(missing) == 10
    with zipfile.ZipFile(tmp_path / "s.zip") as archive:
        assert archive.namelist() == ["WNLI.tsv"]
    assert "done already" in bash(FINETUNE, *words).stdout
    readme_runs(model, tmp_path)


@pytest.mark.slow
def test_fine_tuning_beyond_the_length_of_pre_training(text, bpe, bash, tmp_path):
    """TUPE-R with 64 positions on pairs of 128 tokens, by one override."""
    header = "index|sentence1|sentence2|label"
    parts = {f"WNLI/{name}.tsv": pairs(9, header, ["0", "1"], 60) for name in ("train", "dev")}
    glue = write(tmp_path / "glue", parts | {"WNLI/test.tsv": pairs(3, header[:-6], None, 60)})
    data = binarised(glue, bpe, "WNLI", tmp_path / "data", longest=128)
    flags = ("--position-encoding", "tupe_r", "--max-update", 1)
    trained = pretrain(text, tmp_path / "tupe", *flags)
    words = ("optimization.max_update=2", "lr_scheduler.warmup_updates=1", "dataset.num_workers=0")
    refused = bash(FINETUNE, data, trained, tmp_path / "run", *words)
    assert "+model.extend_positions=toeplitz" in refused.stderr
    done = bash(
        FINETUNE, data, trained, tmp_path / "run", *words, "+model.extend_positions=toeplitz"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    roberta = TupeRobertaModel.from_pretrained(tmp_path / "run" / "model")
    assert roberta.model.max_positions() == 128
    assert len(roberta.model.encoder.sentence_encoder.embed_positions.weight) == 65
    tokens = roberta.encode(sentence(1, 60).lower(), sentence(2, 60).lower())
    assert len(tokens) > 100
    assert roberta.predict(HEAD, tokens).isfinite().all()


def readme_runs(model: Path, folder: Path) -> None:
    """The Python of the README, where its model would be."""
    shutil.copytree(model, folder / "outputs/glue/rte/model")
    block, _ = blocks(GLUE / "README.md", "python")
    namespace: dict = {}
    exec(block.replace('"outputs', f'"{folder}/outputs'), namespace)
    assert namespace["scores"].shape == (1, 2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "three arguments are needed"),
        (("/", "/not/there.pt", "OUT"), "DATA is /, but preprocess_glue.sh has made no task.json"),
        (
            ("DATA", "/not/there.pt", "OUT"),
            "CHECKPOINT is /not/there.pt, but there is no such file",
        ),
    ],
)
def test_finetune_refuses(words, message, bash, tmp_path):
    (tmp_path / "task.json").write_text('{"task": "RTE"}')
    places = {"OUT": tmp_path / "run", "DATA": tmp_path}
    done = bash(FINETUNE, *(places.get(word, word) for word in words))
    assert done.returncode == 1
    assert message in done.stderr


def test_predict_refuses(glue, bpe, tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "task.json").write_text('{"task": "RTE", "examples": {}}')
    words = ["--data", str(tmp_path), "--out", str(tmp_path / "s.zip")]
    with pytest.raises(UsageError, match="two models are of RTE"):
        predict.main(predict.arguments([*words, str(tmp_path / "a"), str(tmp_path / "b")]))
    (tmp_path / "RTE-bin").mkdir()
    shutil.copy(tmp_path / "a" / "task.json", tmp_path / "RTE-bin")
    with pytest.raises(UsageError, match="holds no test set of these models' tasks"):
        predict.main(predict.arguments([*words, str(tmp_path / "a")]))
    with pytest.raises(UsageError, match=r"task\.json is missing; preprocess_glue\.sh"):
        predict.main(predict.arguments([*words, str(tmp_path)]))
    assert not (tmp_path / "s.zip").exists()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda data: (data / "input0" / "dict.txt").write_text("a 1\n"), "another dictionary"),
        (lambda data: change_settings(data, lowercase=False), "cased, .* lower case"),
        (lambda data: change_settings(data, max_positions=65), "up to 65 tokens, .* 64"),
    ],
)
def test_data_made_for_another_model_is_refused(spoil, message, glue, bpe, tmp_path):
    data = binarised(glue, bpe, "WNLI", tmp_path)
    shutil.copytree(data, tmp_path / "model")
    roberta = Namespace(task=Namespace(cfg=Namespace(max_positions=64)))
    predict.check_fit(roberta, tmp_path / "model", data)
    spoil(data)
    with pytest.raises(UsageError, match=message):
        predict.check_fit(roberta, tmp_path / "model", data)


def change_settings(data: Path, **changed: object) -> None:
    settings = json.loads((data / "task.json").read_text())
    (data / "task.json").write_text(json.dumps(settings | changed))
