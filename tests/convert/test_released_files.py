"""Directories with what released models have beside, or in place of, what is written today."""

import json

import pytest
import torch

from tests.convert.samples import bert, change_config, refused, run, writes_onnx
from tests.convert.test_sentence_transformers import sentence_model
from tests.tolerances import assert_close
from tupe_fairseq.convert.directory import load

safetensors = pytest.importorskip("safetensors.torch", reason="transformers is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

TEXTS = (("A Cat",), ("THE bird sàw it!", "on a mat."))


def change_parameters(folder, renamed=lambda name: name, **added) -> None:
    """Rewrite model.safetensors with other names or further parameters."""
    path = folder / "model.safetensors"
    state = {renamed(name): value for name, value in safetensors.load_file(path).items()}
    state |= added
    safetensors.save_file(state, path, metadata={"format": "pt"})


def logits(folder, kind: str) -> list[torch.Tensor]:
    """Of the class of transformers that `kind` names."""
    model = getattr(transformers, f"Bert{kind}").from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        return [model(**tokenizer(*texts, return_tensors="pt"))[0] for texts in TEXTS]


def in_tensorflow(name: str) -> str:
    """The first name of a parameter."""
    for today, then in (("weight", "gamma"), ("bias", "beta")):
        name = name.replace(f"LayerNorm.{today}", f"LayerNorm.{then}")
    return name


def test_names_of_the_first_bert(tmp_path):
    """LayerNorms have TensorFlow's names."""
    source = bert(tmp_path / "source")
    out = tmp_path / "out"
    expected = logits(source, "ForMaskedLM")
    change_parameters(source, in_tensorflow)
    flags = ("--to", "huggingface", "--classes", "bert", "--check")
    run("--from", "huggingface", source, out, *flags)
    for one, other in zip(logits(out, "ForMaskedLM"), expected, strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("kind", ["Model", "ForMaskedLM", "ForSequenceClassification"])
def test_files_of_before_safetensors(kind, parts, tmp_path):
    """pytorch_model.bin, with copies of tied parameters and with buffers, and vocab.txt."""
    source = bert(tmp_path / "source", kind)
    out = tmp_path / "out"
    expected = logits(source, kind)
    model = getattr(transformers, f"Bert{kind}")
    prefix = "" if kind == "Model" else "bert."
    buffer = {f"{prefix}embeddings.position_ids": torch.arange(40)[None]}
    state = [*(model.from_pretrained(source).state_dict() | buffer).items()]
    names = [f"pytorch_model-0000{1 + part}-of-00002.bin" for part in range(parts)]
    if parts == 1:
        names = ["pytorch_model.bin"]
    for part, name in enumerate(names):
        torch.save(dict(state[part::parts]), source / name)
    index = {name: names[number % parts] for number, (name, _) in enumerate(state)}
    if parts > 1:
        path = source / "pytorch_model.bin.index.json"
        path.write_text(json.dumps({"metadata": {}, "weight_map": index}))
    (source / "model.safetensors").unlink()
    vocabulary = json.loads((source / "tokenizer.json").read_text())["model"]["vocab"]
    (source / "vocab.txt").write_text("\n".join(sorted(vocabulary, key=vocabulary.get)))
    (source / "tokenizer.json").unlink()
    run(
        "--from", "huggingface", source, out, "--to", "huggingface", "--classes", "bert", "--check"
    )
    for one, other in zip(logits(out, kind), expected, strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("kind", ["ForTokenClassification", "ForQuestionAnswering"])
def test_a_pooler_beside_a_head_for_tokens(kind, tmp_path):
    """transformers ignores it."""
    source = bert(tmp_path / "source", kind)
    out = tmp_path / "out"
    pooler = {"weight": torch.randn(24, 24), "bias": torch.randn(24)}
    added = {f"bert.pooler.dense.{name}": value for name, value in pooler.items()}
    change_parameters(source, **added)
    flags = ("--to", "huggingface", "--classes", "bert", "--check")
    assert "left out: the pooler" in run("--from", "huggingface", source, out, *flags)
    assert json.loads((out / "config.json").read_text())["architectures"] == [f"Bert{kind}"]
    for one, other in zip(logits(out, kind), logits(source, kind), strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("name", ["sentence_transformers", "sbert_ce_default_activation_function"])
@pytest.mark.parametrize("through", ["transformers", "fairseq"])
def test_the_function_of_a_cross_encoder(name, through, tmp_path):
    library = pytest.importorskip(
        "sentence_transformers", reason="sentence-transformers is not installed"
    )
    source, here, out = (tmp_path / each for each in ("source", "here", "out"))
    bert(source, "ForSequenceClassification", num_labels=1)
    function = "torch.nn.modules.linear.Identity"
    newer = {"activation_fn": function, "version": "4.0.1"}
    change_config(source, {name: newer if name == "sentence_transformers" else function})
    to = ("--to", "huggingface", "--classes", "bert", "--check")
    if through == "fairseq":
        run("--from", "huggingface", source, here)
        run(*to[:2], here, out, "--head", "sentence_classification_head", *to[2:])
    else:
        run("--from", "huggingface", source, out, *to)
    pairs = [("A Cat", "a mat"), ("THE bird", "it")]
    expected, found = (
        library.CrossEncoder(str(f), device="cpu").predict(pairs) for f in (source, out)
    )
    assert_close(torch.tensor(found), torch.tensor(expected))
    assert min(found) < 0 or max(found) > 1, "no sigmoid"


@pytest.mark.parametrize("to", ["fairseq", "huggingface"])
def test_a_tokenizer_with_other_settings(to, tmp_path):
    """transformers follows tokenizer_config.json, so its ids are those of every format."""
    source = bert(tmp_path / "source")
    out = tmp_path / "out"
    path = source / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"do_lower_case": False}))
    expected = transformers.AutoTokenizer.from_pretrained(source)("A Cat").input_ids
    flags = () if to == "fairseq" else ("--to", to)
    run("--from", "huggingface", source, out, *flags, "--check")
    tokenizers = pytest.importorskip("tokenizers")
    before, after = (
        tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).encode("A Cat").ids
        for folder in (source, out)
    )
    assert after == expected != before


def test_lowercased_texts_before_a_cased_tokenizer(tmp_path):
    source = bert(tmp_path / "source")
    here = tmp_path / "here"
    path = source / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"do_lower_case": False}))
    run("--from", "huggingface", source, here)
    (here / "preprocessing.json").write_text('{"lowercase": true}')
    with refused("preprocessing.json lowercases texts, but tokenizer.json does not"):
        run("--to", "huggingface", here, tmp_path / "out")
    (here / "preprocessing.json").write_text('{"lowercase": false}')
    assert load(here).tokenizer


@writes_onnx
def test_modules_that_a_program_lacks(tmp_path):
    source = sentence_model(tmp_path / "source")
    path = source / "modules.json"
    modules = json.loads(path.read_text())
    dense = {
        "idx": 2,
        "name": "2",
        "path": "2_Dense",
        "type": "sentence_transformers.models.Dense",
    }
    path.write_text(json.dumps([*modules, dense]))
    flags = ("--to", "onnx", "--pooling")
    with refused("--pooling is 'mean', but modules.json also has Dense", "use --pooling none"):
        run("--from", "huggingface", source, tmp_path / "out", *flags, "mean")
    assert not (tmp_path / "out").exists()


@writes_onnx
def test_options_beside_modules(tmp_path):
    source = sentence_model(tmp_path / "source")
    flags = ("--to", "onnx", "--pooling", "cls", "--normalize", "yes")
    lines = run("--from", "huggingface", source, tmp_path / "out", *flags)
    assert [line for line in lines if line.startswith("modules.json")] == [
        "modules.json has the pooling mean, but this program cls",
        "modules.json does not normalize embeddings, but this program does",
    ]
