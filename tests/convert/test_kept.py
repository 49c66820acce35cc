"""What a user has is kept in every direction: tokenizer, token types, pooler."""

import json
import shutil
from contextlib import nullcontext

import pytest
import safetensors.torch
import torch

pytest.importorskip("transformers", reason="transformers is not installed")

import transformers

from tests.convert import samples
from tests.convert.samples import (
    assert_same_state,
    bert,
    masked_lm,
    refused,
    roberta,
    run,
)
from tests.huggingface.deberta import RELEASED, theirs_of
from tests.tolerances import assert_close
from tupe_fairseq import TupeRobertaModel
from tupe_fairseq.convert.dictionaries import dictionary_of, dictionary_text
from tupe_fairseq.convert.directory import load, write
from tupe_fairseq.convert.formats import huggingface
from tupe_fairseq.convert.models import HEAD

CLASSIFIER = "ForSequenceClassification"
TEXTS = [("A Cat",), ("THE bird sàw it!", "on a mat."), ("[MASK] cat", "a")]
NAMES = ["not it", "it", "Ähnlich"]


def coded(folder, *texts: str) -> dict[str, list[int]]:
    return dict(transformers.AutoTokenizer.from_pretrained(folder)(*texts))


def loaded(folder, task: str = "Model"):
    auto = getattr(transformers, f"Auto{task}")
    return auto.from_pretrained(folder, trust_remote_code=True).eval()


def outputs(folder, *texts: str):
    given = {name: torch.tensor([row]) for name, row in coded(folder, *texts).items()}
    return loaded(folder)(**given)


def features(folder, *texts: str) -> torch.Tensor:
    return outputs(folder, *texts)[0]


def config(folder) -> dict:
    return json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize("classes", ["bert", "tupe"])
@pytest.mark.parametrize("files", ["tokenizer.json", "vocab.txt", "tokenizer.json alone"])
def test_bert_there_and_back(classes, files, tmp_path):
    """The ids and token types of AutoTokenizer, and features of pairs."""
    source, here, back = (tmp_path / name for name in ("source", "here", "back"))
    bert(source, "Model")
    if files == "vocab.txt":
        vocabulary = json.loads((source / "tokenizer.json").read_text())["model"]["vocab"]
        (source / "tokenizer.json").unlink()
        tokens = sorted(vocabulary, key=vocabulary.get)
        (source / "vocab.txt").write_text("\n".join(tokens) + "\n")
    run("--from", "huggingface", source, here, "--check")
    if files == "tokenizer.json":
        assert (here / files).read_bytes() == (source / files).read_bytes()
    if files.endswith("alone"):
        # As fine-tuned models have it.
        (here / "tokenizer_config.json").unlink()
    run("--to", "huggingface", here, back, "--classes", classes, "--check")
    for texts in TEXTS:
        expected = coded(source, *texts)
        assert {1} <= set(expected["token_type_ids"]) or len(texts) == 1
        assert coded(back, *texts) == expected
        with torch.no_grad():
            assert_close(features(back, *texts), features(source, *texts))
    with torch.no_grad():
        hub = TupeRobertaModel.from_pretrained(here)
        assert_close(hub.extract_features(hub.encode("on a mat.")), features(source, "on a mat."))


@pytest.mark.parametrize("kind", ["Model", "ForMaskedLM", CLASSIFIER])
def test_bert_is_written_as_it_was(kind, tmp_path):
    """Parameters bit for bit: both token types and the pooler are among them."""
    source = bert(tmp_path / "source", kind)
    run("--from", "huggingface", source, tmp_path / "here")
    head = ("--head", HEAD) if kind == CLASSIFIER else ()
    lines = run("--to", "huggingface", tmp_path / "here", tmp_path / "back", *head, "--check")
    assert not any("left out" in line for line in lines)
    assert config(tmp_path / "back")["architectures"] == [f"Bert{kind}"]
    found, expected = (
        safetensors.torch.load_file(folder / "model.safetensors")
        for folder in (tmp_path / "back", source)
    )
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


def test_the_pooler_is_a_head_of_fairseq(tmp_path):
    source = bert(tmp_path / "source", "Model")
    run("--from", "huggingface", source, tmp_path / "here")
    hub = TupeRobertaModel.from_pretrained(tmp_path / "here")
    tokens = hub.encode("a cat")
    with torch.no_grad():
        expected = outputs(source, "a cat").pooler_output
        assert_close(hub.predict("pooler", tokens, return_logits=True), expected)


def test_roberta_there_and_back(tmp_path):
    """Bit for bit with its tokenizer; its second token type, which no text has, is left out."""
    source, here, back = (tmp_path / name for name in ("source", "here", "back"))
    roberta(source, type_vocab_size=2)
    run("--from", "huggingface", source, here, "--check")
    run("--to", "huggingface", here, back, "--check")
    for texts in (("A Cat",), ("the bird", "of\u00a0a mât <mask>")):
        assert coded(back, *texts) == coded(source, *texts)
    assert_same_state(load(here), huggingface.read(back).state)


def test_types_of_a_model_of_fairseq(tmp_path):
    """The tokenizer that is written counts types as fairseq's model does."""
    from tests.convert.pieces import dictionary_of_pieces, train

    words = dictionary_of_pieces(train(tmp_path))
    write(masked_lm("tupe_r", 0, words, tmp_path, type_vocab_size=2)[1], tmp_path / "here")
    run("--to", "huggingface", tmp_path / "here", tmp_path / "hf", "--check")
    found = coded(tmp_path / "hf", "a movie", "good")
    ends = [i for i, number in enumerate(found["input_ids"]) if number == 2]
    assert found["token_type_ids"] == [int(i > ends[0]) for i in range(len(found["input_ids"]))]


def test_check_notices_other_names_and_ids(tmp_path, monkeypatch):
    source = bert(tmp_path / "source", CLASSIFIER, id2label=dict(enumerate(NAMES)))
    write_files = huggingface.write_files
    model_card = huggingface.model_card

    def other_names(converted, model, *more):
        (folder,) = tmp_path.glob(".out.*")
        samples.change_config(folder, {"id2label": {"0": "it", "1": "not it", "2": "Ähnlich"}})
        return model_card(converted, model, *more)

    run("--from", "huggingface", source, tmp_path / "here")
    flags = ("--classes", "tupe", "--head", HEAD, "--check")
    with monkeypatch.context() as patch:
        patch.setattr(huggingface, "model_card", other_names)
        with refused("names of classes are"):
            run("--to", "huggingface", tmp_path / "here", tmp_path / "out", *flags)

    def cased(folder, files):
        for old, new in ((b'"lowercase":', b"true"), (b'"do_lower_case": ', b"true")):
            change = {old + each + new: old + each + b"false" for each in (b"", b" ")}
            for before, after in change.items():
                files = {name: text.replace(before, after) for name, text in files.items()}
        write_files(folder, files)

    monkeypatch.setattr(huggingface, "write_files", cased)
    with refused("the tokenizer of the converted model differs from its source: normalizer"):
        run("--to", "huggingface", tmp_path / "here", tmp_path / "out", *flags)
    assert not (tmp_path / "out").exists()


def test_a_tokenizer_of_another_dictionary_is_refused(tmp_path):
    """Words in place of ids: today's model of fairseq has other rows, `[MASK]` not its mask."""
    tokenizer = bert(tmp_path / "source") / "tokenizer.json"
    vocabulary = json.loads(tokenizer.read_text())["model"]["vocab"]
    write(masked_lm("tupe_r", 0, dictionary_of(vocabulary))[1], tmp_path / "here")
    shutil.copy(tokenizer, tmp_path / "here")
    with refused("tokenizer.json is not the tokenizer of dict.txt, which has '[PAD]' in place of"):
        run("--to", "huggingface", tmp_path / "here", tmp_path / "out")


def test_lower_case_of_a_carried_tokenizer(tmp_path):
    run("--from", "huggingface", bert(tmp_path / "source"), tmp_path / "here")
    with refused("--lower-case does not apply"):
        run("--to", "huggingface", tmp_path / "here", tmp_path / "out", "--lower-case", "yes")
    assert not (tmp_path / "out").exists()


SOURCES = {
    "bert": bert,
    "roberta": roberta,
    "deberta-v2": lambda folder: theirs_of("ForMaskedLM", **RELEASED).save_pretrained(folder),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_from_transformers_to_transformers(kind, tmp_path):
    """Directly, with neither a tokenizer nor a dictionary."""
    source = tmp_path / "source"
    out = tmp_path / "out"
    SOURCES[kind](source)
    for path in source.glob("tokenizer*"):
        path.unlink()
    takes = kind == "roberta"
    way = "save it there, or give --dict, or add" if takes else "save it there, or add"
    with refused(f"has no tokenizer: {way} --to huggingface"):
        run("--from", "huggingface", source, out)
    dictionary = tmp_path / "dict.txt"
    words = dictionary_of(f"w{i}" for i in range(290 - 5))
    dictionary.write_bytes(dictionary_text(words))
    with nullcontext() if takes else refused(f"--dict does not apply to {kind}"):
        run("--from", "huggingface", source, tmp_path / "given", "--dict", dictionary)
    flags = ("--to", "huggingface", "--check", "--classes")
    for classes in (kind, "tupe"):
        lines = run("--from", "huggingface", source, tmp_path / classes, *flags, classes)
        assert lines[-1].startswith("logits: ")
    expected, found = (
        safetensors.torch.load_file(folder / "model.safetensors")
        for folder in (source, tmp_path / kind)
    )
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], value) for name, value in expected.items())
    ids = {name: config(tmp_path / kind).get(f"{name}_token_id") for name in ("bos", "pad", "eos")}
    assert ids == {name: config(source).get(f"{name}_token_id") for name in ids}
