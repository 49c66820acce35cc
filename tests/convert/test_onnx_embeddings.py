"""Programs in ONNX that return features or embeddings of sentences, and are served."""

import json
from pathlib import Path

import pytest
import torch

from tests.convert.samples import TEXT, bert, masked_lm, refused, run, writes_onnx
from tests.convert.test_onnx import batches, served
from tests.convert.test_sentence_transformers import embeddings
from tests.tolerances import FORWARD, assert_close
from tupe_fairseq.convert.directory import outputs_of
from tupe_fairseq.convert.formats import onnx

onnxruntime = pytest.importorskip(
    "onnxruntime", reason="onnxruntime is not installed (extra onnx)"
)
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytestmark = writes_onnx

NAMES = {"none": "last_hidden_state", "mean": "sentence_embedding", "cls": "sentence_embedding"}


def pooled(features: torch.Tensor, kind: str, unit: bool) -> torch.Tensor:
    """Of the features of one text, T×C."""
    vector = {"none": features, "mean": sum(features) / len(features), "cls": features[0]}[kind]
    return vector / (vector @ vector).sqrt() if unit else vector


def assert_pooled(program: Path, kind: str, unit: bool, features, padding: int) -> None:
    """A row of a batch, padded on the right, is the pooled features of its text alone."""
    session = onnxruntime.InferenceSession(str(program))
    names = [each.name for each in session.get_inputs()]
    for ids in batches():
        visible = ids.ne(1)
        inputs = {"input_ids": ids.where(visible, padding), "attention_mask": visible.long()}
        inputs["token_type_ids"] = torch.zeros_like(ids)
        rows = session.run([NAMES[kind]], {name: inputs[name].numpy() for name in names})[0]
        assert kind == "none" or rows.shape == (len(ids), rows.shape[-1])
        for row, text, seen in zip(torch.tensor(rows), ids, visible, strict=True):
            expected = pooled(features(text[seen][None])[0], kind, unit)
            actual = row[seen] if kind == "none" else row
            error = (actual - expected).abs().max() / expected.abs().max()
            assert error < FORWARD[torch.float32]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "kind", "unit"),
    [
        ("ForSequenceClassification", "mean", True),
        ("Model", "none", False),
    ],
)
@torch.no_grad()
def test_bert(source, kind, unit, tmp_path):
    """In place of the head, if there is one."""
    folder = bert(tmp_path / "bert", source)
    out = tmp_path / "out"
    flags = ("--pooling", kind, "--normalize", "yes" if unit else "no", "--check")
    report = run("--from", "huggingface", folder, out, "--to", "onnx", *flags)
    what = "features" if kind == "none" else "embeddings"
    assert report[-1].startswith(f"{what}: largest difference")
    model = transformers.BertModel.from_pretrained(folder).eval()
    features = lambda ids: model(ids).last_hidden_state  # noqa: E731
    assert_pooled(out / onnx.FILE, kind, unit, features, padding=0)
    if kind == "none":
        done = served(out, ["a"])
        assert done.returncode == 1
        assert "which returns features: convert with --pooling mean" in done.stderr


@pytest.mark.slow
def test_tupe(tmp_path):
    built, converted = masked_lm("tupe_r", labels=3, encoder_layers=1)
    onnx.write(converted, tmp_path / "out", pooling="cls", normalize=True)
    features = outputs_of(built, None, features=True)
    assert_pooled(tmp_path / "out" / onnx.FILE, "cls", True, features, padding=1)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"pooling": "max"}, "--pooling is 'max', but can be: none, mean, cls"),
        ({"normalize": True}, "--normalize is for embeddings of sentences: add --pooling"),
        ({"pooling": "none", "normalize": True}, "--normalize is for embeddings"),
        ({"pooling": "mean", "head": "topic"}, "--head is 'topic' and --pooling is 'mean'"),
    ],
)
def test_invalid_options(options, part, tmp_path):
    with refused(part):
        onnx.write(masked_lm("rope")[1], tmp_path / "out", **options)
    assert not list(tmp_path.iterdir())


def assert_served(program: Path, source: Path, texts: list[str]) -> None:
    """The example prints the embeddings of sentence-transformers."""
    done = served(program, texts)
    assert done.returncode == 0, done.stderr
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert [text for _, text in lines] == texts
    actual = [json.loads(vector) for vector, _ in lines]
    expected = embeddings(source, texts)
    assert abs(torch.tensor(actual) - torch.tensor(expected)).max() < 1e-5


@pytest.mark.real_data
@pytest.mark.slow
def test_serving_a_released_bert(released_bert, tmp_path):
    """Of more texts than one batch has."""
    flags = ("--to", "onnx", "--pooling", "mean", "--normalize", "yes", "--check")
    run("--from", "huggingface", released_bert, tmp_path / "out", *flags)
    texts = ["A man is playing a guitar .", "", "The naïve café , 12 QUESTIONS ?", TEXT[1] * 50]
    assert_served(tmp_path / "out", released_bert, texts * 5)


def test_padding_anywhere(tmp_path):
    """Positions count tokens, as in the classes for transformers."""
    folder = bert(tmp_path / "bert", "Model")
    out = tmp_path / "out"
    run("--from", "huggingface", folder, out, "--to", "onnx", "--pooling", "mean")
    session = onnxruntime.InferenceSession(str(out / onnx.FILE))
    text = torch.arange(7, 13)
    found = []
    for places in (slice(0, 6), slice(3, 9), [0, 1, 3, 4, 6, 8]):
        ids, mask = torch.zeros(2, 1, 9, dtype=torch.long)
        ids[0, places] = text
        mask[0, places] = 1
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": 0 * ids}
        (row,) = session.run(None, {name: value.numpy() for name, value in given.items()})
        found.append(torch.tensor(row))
    for each in found[1:]:
        assert_close(each, found[0])
