"""examples/transplant: the experiment, its report, and long texts."""

import json
import random
from pathlib import Path

import pytest
import torch

from examples.shared.results import read_results
from examples.transplant import long_texts
from examples.transplant.experiment import main
from examples.transplant.report import HYPOTHESES, report
from tests.examples.test_serving import WORDS, write
from tupe_fairseq import UsageError

transformers = pytest.importorskip("transformers", reason="transformers is not installed")


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    write(folder := tmp_path_factory.mktemp("source") / "bert", "Model")
    return folder


@pytest.fixture(scope="module")
def articles(tmp_path_factory) -> Path:
    """Three of 300 words, and one that is too short, as WikiExtractor writes them."""
    draw, folder = random.Random(0), tmp_path_factory.mktemp("articles")
    lines = []
    for number, words in enumerate((300, 300, 20, 300)):
        text = " ".join(draw.choices(WORDS, k=words))
        lines += [f'<doc id="{number}" url="" title="T{number}">', f"T{number}", text, "</doc>"]
    (folder / "wiki_00").write_text("\n".join(lines))
    return folder


def measured(source: Path, articles: Path, out: Path, way: str) -> dict[str, dict[str, float]]:
    words = [source, source, articles, out, "--way", way, "--lengths", "32", "128"]
    long_texts.main([str(word) for word in words])
    return json.loads(out.read_text())


@pytest.mark.parametrize("way", ["truncated", "chunks", "interpolated", "grouped", "hierarchical"])
def test_ways_to_read_long_texts(way, source, articles, tmp_path):
    """Texts that the source can read have its vectors, unless positions change with the length."""
    found = measured(source, articles, tmp_path / "out.json", way)
    assert found["128"]["articles"] == 3
    assert "cosine" not in found["128"]
    assert found["32"]["cosine"] == pytest.approx(1, abs=0.2 if way == "interpolated" else 1e-6)


@pytest.mark.parametrize("way", ["chunk", "atention_window=4", "attention_window=x"])
def test_unknown_ways(way, source, articles, tmp_path):
    with pytest.raises(UsageError, match=f"--way has '{way}', but must be one of plain, "):
        measured(source, articles, tmp_path / "out.json", way)


def test_vectors_of_chunks(source):
    """The mean over the tokens of all chunks, each with special tokens of its own."""
    from examples.transplant.encoders import Encoder, read_source
    from examples.transplant.texts import Tokens

    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    text = tokenizer(" ".join(WORDS[:11]), add_special_tokens=False)["input_ids"]
    encoder = Encoder(read_source(source)).eval()
    (found,) = long_texts.vectors(encoder, Tokens(tokenizer, 64), [text], 4)
    model = transformers.AutoModel.from_pretrained(source).eval()
    parts = [[2, *text[first : first + 4], 3] for first in range(0, len(text), 4)]
    with torch.no_grad():
        features = [model(torch.tensor([part]))[0][0] for part in parts]
    torch.testing.assert_close(found, torch.cat(features).mean(0), atol=1e-5, rtol=0)


def test_experiment(source, articles, tmp_path):
    """A run of it, and what the report says then."""
    draw = random.Random(0)
    lines = [" ".join(draw.choices(WORDS, k=draw.randint(2, 30))) for _ in range(1100)]
    (text := tmp_path / "text").write_text("\n".join(lines))
    rows = ["\t".join([*"0123456", "sentence1", "sentence2", "score"])]
    rows += ["\t".join([*"0123456", *draw.sample(lines, 2), f"{i % 6}.0"]) for i in range(40)]
    (glue := tmp_path / "glue" / "STS-B").mkdir(parents=True)
    for split in ("train", "dev"):
        (glue / f"{split}.tsv").write_text("\n".join(rows) + "\n")
    words = [source, text, glue.parent, "--out", tmp_path / "out", "--updates", "2"]
    main([*map(str, words), "--only", "encodings/none/1"])
    (run,) = (each for each in read_results(tmp_path / "out")["runs"].values() if "result" in each)
    assert run["result"]["curve"][-1]["update"] == 2
    lines = (tmp_path / "out" / "report.md").read_text().splitlines()
    assert any(line.startswith("| none | 1 |") for line in lines)
    assert (tmp_path / "out" / "fidelity.png").exists()
    with pytest.raises(UsageError, match="does not exist"):
        main([*map(str, words[:2]), "/not/there", *map(str, words[3:])])


def result(**changes) -> dict:
    """Of a transplant that follows its source."""
    order = {"gap": 0.005, "rank": 0.96}
    curve = [
        {"update": update, "minutes": update / 100, "error": 0.1, "rank": rank}
        for update, rank in ((0, 0.0), (300, 0.9), (400, 0.92))
    ]
    found = {"sts_b": 86.6, "sts_b_of_source": 86.72, "shuffled": order, "swapped": order}
    return found | {"curve": curve} | changes


def test_hypotheses(tmp_path):
    runs = {}

    def add(part: str, name: str, found: dict, **settings) -> None:
        for seed in (1, 2, 3):
            key = f"{part}/{name}/{settings}/{seed}"
            own = {"part": part, "name": name, "seed": seed, **settings}
            runs[key] = {"settings": own, "result": found}

    for name in ("tupe_a", "rope", "t5", "alibi", "deberta", "learned"):
        add("encodings", name, result())
    add("encodings", "tupe_r", result(shuffled={"gap": 0.02, "rank": 0.9}))
    add("encodings", "none", result(sts_b=86.0, shuffled={"gap": 0.2, "rank": 0.1}))
    add("starts", "tupe_r+mean", result(curve=[{**result()["curve"][-1], "rank": 0.91}]))
    add("order", "tupe_r+1200", result())
    for name, score in (("source", 40.0), ("order/tupe_r+1200", 38.0)):
        add("tasks", name, {"score": score, "epoch": 1}, task="CoLA")
    for name, score in (("source", 85.0), ("encodings/deberta", 82.0), ("pairs/deberta", 84.0)):
        for task in ("STS-B", "MRPC"):
            add("tasks", name, {"score": score, "epoch": 1}, task=task)
    lengths = {each: {"articles": 9, "found": 0.5, "rank": 0.6} for each in ("1024", "2048")}
    for name, way in (("source", "chunks"), ("tupe_r", "plain")):
        settings = {"part": "ways", "name": name, "way": way}
        runs[name] = {"settings": settings, "result": {"lengths": lengths}}
    (tmp_path / "results.json").write_text(json.dumps({"command": "", "plan": {}, "runs": runs}))
    report(tmp_path)
    lines = (tmp_path / "report.md").read_text().splitlines()
    verdicts = [
        line.split(" | ")[1] for line in lines if line[:4] in {f"| {h}" for h in HYPOTHESES}
    ]
    refuted = ["**refuted**" if name in ("H4", "H6") else "confirmed" for name in HYPOTHESES]
    assert verdicts == refuted
