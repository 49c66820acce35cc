"""The cosines that `--to onnx` tells, and their limit."""

import re

import pytest
import torch

from tests.convert.samples import TEXT, bert, masked_lm, refused, run, writes_onnx
from tupe_fairseq.convert.formats import onnx

onnxruntime = pytest.importorskip(
    "onnxruntime", reason="onnxruntime is not installed (extra onnx)"
)
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytestmark = writes_onnx


@torch.no_grad()
def test_cosines_of_texts_are_told(tmp_path):
    source = bert(tmp_path / "bert", "Model", num_hidden_layers=1)
    texts = [text.strip() for text in TEXT[:3]]
    (tmp_path / "texts.txt").write_text("\n\n".join(texts), encoding="utf-8")
    out = tmp_path / "out"
    flags = ["--pooling", "mean", "--int8", "yes", "--texts", tmp_path / "texts.txt"]
    report = run("--from", "huggingface", source, out, "--to", "onnx", *flags)
    model = transformers.AutoModel.from_pretrained(source).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    for name, precision in ((onnx.FILE, "fp32"), (onnx.INT8_FILE, "int8")):
        session = onnxruntime.InferenceSession(out / name)
        expected = []
        for text in texts:
            given = tokenizer(text, return_tensors="pt")
            there = model(**given).last_hidden_state[0].mean(0).double()
            arrays = {key: value.numpy() for key, value in given.items()}
            (vectors,) = session.run(["sentence_embedding"], arrays)
            here = torch.from_numpy(vectors[0]).double()
            expected.append((here @ there / (here.norm() * there.norm())).item())
        (line,) = (each for each in report if each.startswith(f"{name}: cosine to the source"))
        assert f"in {precision}: " in line
        assert f" of {len(texts)} texts" in line
        mean, least = map(float, re.findall(r"[01]\.\d{5}", line))
        assert mean == pytest.approx(sum(expected) / len(texts), abs=2e-5)
        assert least == pytest.approx(min(expected), abs=2e-5)


def test_a_refusal_leaves_nothing(tmp_path):
    with refused("--least-cosine is 1, but model.", " at least: ", "lower it"):
        model = masked_lm("rope", encoder_layers=1)[1]
        onnx.write(model, tmp_path / "out", int8=True, least_cosine=1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["--texts", "nowhere.txt"], "--texts is 'nowhere.txt': cannot be read"),
        (["--least-cosine", "98"], "--least-cosine is 98.0, but must be from 0 to 1"),
    ],
)
def test_bad_arguments_are_told_before_the_export(flags, part, tmp_path, monkeypatch):
    source = bert(tmp_path / "bert", "Model", num_hidden_layers=1)
    monkeypatch.setattr(onnx, "export", lambda *_: pytest.fail("a program was exported"))
    with refused(part):
        run("--from", "huggingface", source, tmp_path / "out", "--to", "onnx", *flags)
