"""Programs in ONNX give the outputs of fairseq's models for every shape, and are served."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests import ROOT
from tests.convert.pieces import dictionary_of_pieces, train
from tests.convert.samples import (
    bert,
    masked_lm,
    refused,
    roberta,
    run,
    writes_onnx,
)
from tests.tolerances import FORWARD, assert_close
from tupe_fairseq import TupeRobertaModel
from tupe_fairseq.convert.directory import outputs_of, write
from tupe_fairseq.convert.formats import onnx
from tupe_fairseq.convert.models import HEAD

for library in ("onnxruntime", "onnxscript", "transformers"):
    pytest.importorskip(library, reason=f"{library} is not installed (extra onnx)")

import onnxruntime  # noqa: E402
import transformers  # noqa: E402

pytestmark = writes_onnx

WINDOW = {"attention_window": 3}
#: Options of DeBERTa-v3, whose logarithmic buckets texts of three tokens reach.
RELEASED = {"deberta_released": True, "deberta_share": True, "deberta_norm": True}
RELEASED |= {"deberta_buckets": 4, "relative_clip": 20}
TOEPLITZ = {"extend_positions": "toeplitz", "trained_positions": 10, "toeplitz_slope": 1.0}


def batches() -> list[torch.Tensor]:
    """Ids of several shapes; all rows but the first are padded."""
    found = []
    generator = torch.Generator().manual_seed(0)
    for rows, length in ((1, 2), (3, 24), (6, 9), (2, 17)):
        ids = torch.randint(4, 44, (rows, length), generator=generator)
        for row in range(1, rows):
            ids[row, length - row :] = 1
        found.append(ids)
    return found


@torch.no_grad()
def largest_error(run, built, head: str | None) -> float:
    """Relative to the largest logit."""
    pairs = []
    for ids in batches():
        pair = torch.stack((run(ids), outputs_of(built, head)(ids)))
        pairs.append((pair if head else pair[:, ids.ne(1)]).flatten(1))
    actual, expected = torch.cat(pairs, 1)
    return ((actual - expected).abs().max() / expected.abs().max()).item()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "head", "options"),
    [
        ("rope", HEAD, {}),
        ("deberta", None, RELEASED),
        ("tupe_r", None, TOEPLITZ | WINDOW),
    ],
)
def test_outputs(name, head, options, tmp_path):
    """The bound on 8-bit matrices is three times what these random models have."""
    built, converted = masked_lm(name, 3 if head else 0, encoder_layers=1, **options)
    onnx.write(converted, tmp_path / "out", head=head, int8=True)
    files = (tmp_path / "out" / name for name in (onnx.FILE, onnx.INT8_FILE))
    exact, rounded = (onnx.session(path, converted) for path in files)
    assert largest_error(exact, built, head) < FORWARD[torch.float32]
    assert 1e-4 < largest_error(rounded, built, head) < 0.1
    ids = batches()[1]
    together = rounded(ids)
    for row, length in enumerate(ids.ne(1).sum(1)):
        # Rounding in attention may change a rounded number by one.
        alone = rounded(ids[row : row + 1, :length])[0]
        error = (together[row] if head else together[row, :length]) - alone
        assert error.norm() / alone.norm() < 1e-3
    assert any("int8.onnx: random texts' outputs differ by" in n for n in converted.notes)


@pytest.mark.parametrize(
    ("model", "options", "part"),
    [
        (lambda: masked_lm("rnn"), {}, "--position-encoding is 'rnn', which torch cannot export"),
        (
            lambda: masked_lm("rope", rope_scaling="dynamic", rope_scaling_factor=2.0),
            {},
            "--rope-scaling is 'dynamic', which torch cannot export",
        ),
        (lambda: masked_lm("rope"), {"head": "topic"}, "unknown --head 'topic'"),
    ],
)
def test_models_that_cannot_be_written(model, options, part, tmp_path):
    with refused(part):
        onnx.write(model()[1], tmp_path / "out", **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_heads_of_one_layer(tmp_path):
    """Outputs are those of transformers' class: two for answers. The example serves neither."""
    folder = roberta(tmp_path / "model", "ForQuestionAnswering")
    run("--from", "huggingface", folder, tmp_path / "out", "--to", "onnx", "--check")
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    session = onnxruntime.InferenceSession(tmp_path / "out" / onnx.FILE)
    ids = torch.randint(5, 18, (2, 7))
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    found = session.run(None, {name: value.numpy() for name, value in given.items()})
    with torch.no_grad():
        expected = model(**given)
    assert [each.name for each in session.get_outputs()] == [*expected]
    for values, name in zip(found, expected, strict=True):
        assert_close(torch.from_numpy(values), expected[name])
    done = served(tmp_path / "out", ["The CAT"])
    assert done.returncode == 1
    assert "which has outputs for each token" in done.stderr


@pytest.fixture
def directory(tmp_path, request):
    """A `tupe_roberta` model with a tokenizer and a head."""
    classes = getattr(request, "param", 3)
    words = dictionary_of_pieces(train(tmp_path))
    write(masked_lm("tupe_r", classes, words, tmp_path)[1], tmp_path / "model")
    return tmp_path / "model"


#: Runs a program where neither torch nor transformers can be imported.
SERVE = """
import runpy, sys
for name in ("torch", "transformers", "fairseq", "tupe_fairseq"):
    sys.modules[name] = None
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""


def served(folder: Path, texts: list[str]) -> subprocess.CompletedProcess:
    command = (sys.executable, "-c", SERVE, str(ROOT / "examples/huggingface/serve.py"), folder)
    return subprocess.run(command, input="\n".join(texts), capture_output=True, text=True)


@pytest.mark.slow
@torch.no_grad()
def test_serving_a_bert(tmp_path):
    """Its own padding, names of classes, which do not exclude each other, and types of pairs."""
    names = {0: "no", 1: "yes it is", 2: "perhaps"}
    options = {"id2label": names, "problem_type": "multi_label_classification"}
    source = bert(tmp_path / "source", "ForSequenceClassification", **options)
    run("--from", "huggingface", source, tmp_path / "here")
    run("--to", "onnx", tmp_path / "here", tmp_path / "out", "--head", HEAD, "--check")
    texts = ["The CAT", "a bird saw it , and\ton the mat .", "a"]
    done = served(tmp_path / "out", texts)
    assert done.returncode == 0, done.stderr
    model = transformers.AutoModelForSequenceClassification.from_pretrained(source).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    for text, line in zip(texts, done.stdout.splitlines(), strict=True):
        given = tokenizer(*text.split("\t"), return_tensors="pt")
        probabilities = model(**given).logits[0].sigmoid()
        best = probabilities.argmax().item()
        assert line == f"{names[best]} {probabilities[best]:.3f}\t{text}"


@pytest.mark.slow
@pytest.mark.parametrize(("head", "directory"), [(None, 3), (HEAD, 2)], indirect=["directory"])
@torch.no_grad()
def test_serving(head, directory, tmp_path):
    """The example prints the words or the class that fairseq's model gives."""
    out = tmp_path / "out"
    flags = ("--head", head) if head else ()
    report = run("--to", "onnx", directory, out, "--check", *flags)
    assert sum("largest difference" in line for line in report) == 1
    texts = ["a <mask> movie .", "a good movie . " * 9, "", "good"]
    done = served(out, texts)
    assert done.returncode == 0, done.stderr
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert [text for _, text in lines] == texts
    hub = TupeRobertaModel.from_pretrained(directory)
    if head is None:
        words = [word.strip() for _, _, word in hub.fill_mask(texts[0])]
        # A token can be a space alone.
        found = [part.rpartition(" ")[0].strip() for part in lines[0][0].split(", ")]
        assert found == words
        assert lines[3][0] == "(no mask)"
    else:
        probabilities = hub.predict(head, hub.encode("good"))[0].exp()
        best = probabilities.argmax().item()
        assert lines[3][0] == f"LABEL_{best} {probabilities[best]:.3f}"
