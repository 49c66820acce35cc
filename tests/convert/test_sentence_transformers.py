"""Files of sentence-transformers are carried, and a released BERT goes through every door."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from tests import ROOT
from tests.convert.samples import TEXT, bert, refused, run, writes_onnx
from tests.tolerances import FORWARD, assert_close
from tupe_fairseq import TupeRobertaModel

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
]
STSB = ROOT.parent / "shared/data/glue_data/STS-B/dev.tsv"


def sentence_model(folder: Path) -> Path:
    """A BERT with the files of sentence-transformers: the mean of its features."""
    bert(folder, "Model")
    return add_sentence_files(folder, 9)


def add_sentence_files(folder: Path, longest: int) -> Path:
    """To a model of width 24: the mean of its features, of texts that are cut at `longest`."""
    (folder / "modules.json").write_text(json.dumps(MODULES))
    (folder / "sentence_bert_config.json").write_text(f'{{"max_seq_length": {longest}}}')
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 24, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling/config.json").write_text(json.dumps(pooling))
    return folder


def embeddings(folder: Path, texts: list[str]) -> np.ndarray:
    library = pytest.importorskip(
        "sentence_transformers", reason="sentence-transformers is not installed"
    )
    model = library.SentenceTransformer(str(folder), trust_remote_code=True, device="cpu")
    return model.encode(texts)


@pytest.mark.parametrize("classes", ["bert", "tupe"])
def test_embeddings_are_equal(classes, tmp_path):
    """Texts are cut at nine tokens, as the settings say."""
    source, here, back = (tmp_path / name for name in ("source", "here", "back"))
    texts = [*TEXT, "The CAT .", TEXT[0] * 9]
    run("--from", "huggingface", sentence_model(source), here)
    run("--to", "huggingface", here, back, "--classes", classes)
    expected = torch.tensor(embeddings(source, texts))
    assert_close(torch.tensor(embeddings(back, texts)), expected)
    assert_close(expected[3], expected[0])


@pytest.mark.parametrize("part", ["../secret", "/etc"])
def test_a_folder_elsewhere_is_refused(part, tmp_path):
    """Nothing outside of the directory is copied."""
    source = sentence_model(tmp_path / "source")
    (tmp_path / "secret").mkdir()
    (source / "modules.json").write_text(json.dumps([{**MODULES[1], "path": part}]))
    with refused("modules.json names", part):
        run("--from", "huggingface", source, tmp_path / "here")


@pytest.fixture(scope="module")
def doors(released_bert, tmp_path_factory):
    """The released BERT in fairseq and in transformers; our class with --check."""
    folder = tmp_path_factory.mktemp("doors")
    run("--from", "huggingface", released_bert, folder / "fairseq")
    run("--to", "huggingface", folder / "fairseq", folder / "bert", "--classes", "bert")
    flags = ("--classes", "tupe", "--check")
    lines = run("--to", "huggingface", folder / "fairseq", folder / "tupe", *flags)
    assert "ids of 7 texts: equal" in lines
    assert lines[-1].startswith("features: ")
    return folder


def sentences(count: int) -> tuple[list[str], list[str], list[float]]:
    """Pairs of STS-B's development set, and their similarity."""
    if not STSB.is_file():
        pytest.skip(f"{STSB} is not there")
    rows = [line.split("\t") for line in STSB.read_text(encoding="utf-8").splitlines()]
    columns = [rows[0].index(name) for name in ("sentence1", "sentence2", "score")]
    found = [[row[i] for i in columns] for row in rows[1:]][:: len(rows) // count][:count]
    one, two, scores = zip(*found, strict=True)
    return [*one], [*two], [float(score) for score in scores]


@pytest.mark.real_data
@pytest.mark.slow
@pytest.mark.parametrize(
    "door", ["fairseq", "bert", "tupe", pytest.param("onnx", marks=writes_onnx)]
)
@torch.no_grad()
def test_features_of_a_released_bert(door, released_bert, doors):
    """Of pairs too, whose second sentence has token type 1."""
    one, two, _ = sentences(12)
    tokenizer = transformers.AutoTokenizer.from_pretrained(released_bert)
    model = transformers.AutoModel.from_pretrained(released_bert).eval()
    if door == "onnx":
        pytest.importorskip("onnxscript", reason="onnxscript is not installed (extra onnx)")
        run("--to", "onnx", doors / "fairseq", doors / "onnx")
    features = features_of(door, doors)
    for texts in [(text,) for text in one[:6]] + [*zip(one, two, strict=True)][6:]:
        expected = model(**tokenizer(*texts, return_tensors="pt")).last_hidden_state
        found = features(texts)
        error = (found - expected).abs().max() / expected.abs().max()
        assert error < FORWARD[torch.float32], (door, texts)


def features_of(door: str, doors: Path):
    """Texts -> features, 1×T×C, by the model behind a door."""
    folder = doors / door
    if door == "fairseq":
        hub = TupeRobertaModel.from_pretrained(folder)
        return lambda texts: hub.extract_features(hub.encode(*texts))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    if door == "onnx":
        from onnxruntime import InferenceSession

        session = InferenceSession(str(folder / "model.onnx"))
        return lambda texts: torch.tensor(
            session.run(["last_hidden_state"], dict(tokenizer(*texts, return_tensors="np")))[0]
        )
    model = transformers.AutoModel.from_pretrained(folder, trust_remote_code=True).eval()
    return lambda texts: model(**tokenizer(*texts, return_tensors="pt")).last_hidden_state


@pytest.mark.real_data
@pytest.mark.slow
@pytest.mark.parametrize("door", ["bert", "tupe"])
def test_similarity_by_a_released_bert(door, released_bert, doors):
    """Rank correlation with STS-B's scores of 100 pairs, and the embeddings themselves."""
    from scipy.stats import spearmanr

    one, two, scores = sentences(100)
    found = []
    expected = []
    for texts in (one, two):
        found.append(embeddings(doors / door, texts))
        expected.append(embeddings(released_bert, texts))
        np.testing.assert_allclose(found[-1], expected[-1], atol=1e-5)
    ranks = [spearmanr((a * b).sum(1), scores).statistic for a, b in (found, expected)]
    assert ranks[0] == pytest.approx(ranks[1], abs=1e-4)
    assert ranks[0] > 0.8
