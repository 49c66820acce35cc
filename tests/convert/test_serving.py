"""examples.huggingface.serve: bytes that people have, lines that arrive, and imports."""

import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from tests import ROOT
from tests.convert.samples import TEXT, bert, roberta, run, writes_onnx
from tests.convert.test_onnx import SERVE
from tupe_fairseq.base.errors import DataError
from tupe_fairseq.base.texts import decoded

for library in ("onnxruntime", "onnxscript", "transformers"):
    pytest.importorskip(library, reason=f"{library} is not installed (extra onnx)")

import transformers  # noqa: E402

from examples.huggingface import serve  # noqa: E402

pytestmark = writes_onnx

NAMES = {0: "no", 1: "yes", 2: "perhaps"}
#: Ends of lines, marks and locales change what RoBERTa reads.
TEXTS = [
    "the café",
    "",
    "a mat\u2028the cat\x0c",
    "a bird\rsaw",
    "the cat\ta bird",
    'a "quoted',
    "x" * 999,
]


def classifier(write, folder: Path, **tokenizer) -> Path:
    """A directory of transformers with these settings of its tokenizer."""
    write(folder, "ForSequenceClassification", id2label=NAMES)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | tokenizer))
    return folder


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A RoBERTa whose longest text is half of its positions, of which it keeps the end."""
    folder = tmp_path_factory.mktemp("source") / "model"
    return classifier(roberta, folder, model_max_length=19, truncation_side="left")


@pytest.fixture(scope="module")
def program(source):
    out = source.with_name("program")
    run("--from", "huggingface", source, out, "--to", "onnx")
    return out


def started(program: Path, **environment: str) -> subprocess.Popen:
    """The command, where neither torch nor this package can be imported."""
    command = (sys.executable, "-c", SERVE, str(ROOT / "examples/huggingface/serve.py"), program)
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(command, env=os.environ | environment, **pipes)


@torch.no_grad()
def expected(source: Path, texts: list) -> list[tuple[str, float]]:
    """By transformers, each text or pair alone."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(source).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    found = []
    for text in texts:
        both = (text,) if isinstance(text, str) else text
        given = tokenizer(*both, truncation=True, return_tensors="pt")
        share, best = model(**given).logits[0].softmax(-1).max(-1)
        found.append((NAMES[best.item()], share.item()))
    return found


def assert_answers(found: list[tuple[str, float]], wanted: list[tuple[str, float]]) -> None:
    assert [name for name, _ in found] == [name for name, _ in wanted]
    shares = [share for _, share in wanted]
    assert [share for _, share in found] == pytest.approx(shares, abs=6e-4)


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["", "mark"])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"},
        {"PYTHONUTF8": "0", "PYTHONIOENCODING": "latin-1"},
    ],
    ids=["C", "latin1"],
)
def test_bytes(mark, end, environment, source, program):
    """The text of each line is that between the ends, and comes back as it was."""
    process = started(program, **environment)
    out, errors = process.communicate((mark + "".join(t + end for t in TEXTS)).encode())
    assert process.returncode == 0, errors
    lines = [line.split("\t", 1) for line in out.decode().split("\n")[:-1]]
    assert [text for _, text in lines] == TEXTS
    answers = [(answer[:-6], float(answer[-5:])) for answer, _ in lines]
    pairs = [tuple(text.split("\t")) if "\t" in text else text for text in TEXTS]
    assert_answers(answers, expected(source, pairs))


@pytest.mark.parametrize("contents", [b"caf\xe9", "café".encode("utf-16")])
def test_a_line_that_is_not_utf8(contents, program):
    """The lines before it are answered."""
    process = started(program)
    out, errors = process.communicate(b"a mat\n" * 17 + contents + b"\n")
    assert process.returncode == 1
    assert errors.decode().startswith("error: standard input: line 18 is not UTF-8, byte 0x")
    assert errors.count(b"\n") == 1
    assert out.count(b"\n") == 17


def test_lines_are_answered_as_they_arrive(program):
    """While standard input is still open."""
    process = started(program)
    timer = threading.Timer(60, process.kill)
    timer.start()
    for text in (b"a mat", b"the cat"):
        process.stdin.write(text + b"\n")
        process.stdin.flush()
        assert process.stdout.readline().endswith(text + b"\n")
    process.communicate()
    timer.cancel()
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("write", "tokenizer"),
    [
        (bert, {"truncation_side": "left", "padding_side": "left", "model_max_length": 9}),
        (bert, {"model_max_length": int(1e30)}),
    ],
    ids=["left", "unlimited"],
)
def test_settings_of_tokenizers(write, tokenizer, tmp_path):
    """Texts and pairs are cut where transformers cuts them; padding changes nothing."""
    folder = classifier(write, tmp_path / "model", **tokenizer)
    run("--from", "huggingface", folder, tmp_path / "out", "--to", "onnx")
    first, second = TEXT
    texts = [first, second, (first, second), (second, "a cat"), "a", ""]
    assert_answers(serve.Program(tmp_path / "out")(texts), expected(folder, texts))


def test_a_side_that_tokenizer_json_records(tmp_path):
    """Without tokenizer_config.json's: transformers takes it from there."""
    folder = classifier(bert, tmp_path / "model", model_max_length=9)
    path = folder / "tokenizer.json"
    cut = {"direction": "Left", "max_length": 5, "strategy": "LongestFirst", "stride": 0}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"truncation": cut}))
    run("--from", "huggingface", folder, tmp_path / "out", "--to", "onnx")
    assert_answers(serve.Program(tmp_path / "out")(TEXT), expected(folder, TEXT))


def test_imported(source, program):
    """A tab is no separator there: a pair is a tuple."""
    texts = ["a mat", ("the cat", "a\tbird"), "a\tbird"] * 9
    assert_answers(serve.Program(program)(texts), expected(source, texts))
    assert serve.Program(str(program))([]) == []
    with pytest.raises(ValueError, match=r"has no model\.int8\.onnx: see --to onnx"):
        serve.Program(program, "model.int8.onnx")


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r\r\n", b"\r"])
@pytest.mark.parametrize("last", [True, False])
def test_lines_are_those_of_the_package(end, last):
    """The file can be copied, so it has a reader of its own."""
    contents = b"\xef\xbb\xbf" + end.join(text.encode() for text in TEXTS * 9) + end * last
    found = [
        line for lines in serve.arriving(io.BufferedReader(io.BytesIO(contents))) for line in lines
    ]
    assert found == list(decoded(io.BytesIO(contents), "text"))
    broken = io.BytesIO(contents + b"\xff")
    with pytest.raises(DataError) as told:
        list(decoded(io.BytesIO(broken.getvalue()), "standard input"))
    with pytest.raises(ValueError, match="is not UTF-8") as here:
        list(serve.arriving(broken))
    assert str(here.value) == str(told.value)
