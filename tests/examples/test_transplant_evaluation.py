"""What is measured of a transplant: `examples.transplant.evaluate` and `compare`."""

import json
import random

import pytest
import torch
from scipy.stats import spearmanr

from examples.transplant import compare
from tests.convert.test_sentence_transformers import add_sentence_files
from tests.examples.test_serving import WORDS, write
from tests.examples.test_transplant import NAME, transplant
from tests.processes import run
from tests.transplant import write_lines

transformers = pytest.importorskip("transformers", reason="transformers is not installed")


def test_evaluation(tmp_path):
    """STS-B's score is that of transformers' class, which reads 64 tokens of a long sentence."""
    write(folder := tmp_path / "bert", "Model")
    source = add_sentence_files(folder, 20)
    text = write_lines(tmp_path / "lines.txt")
    draw = random.Random(1)
    glue = tmp_path / "STS-B"
    sizes = [80, *[8] * 39]
    pairs = [[" ".join(draw.choices(WORDS, k=size)) for _ in range(2)] for size in sizes]
    people = [number % 6 for number in range(40)]
    rows = ["\t".join([*"0123456", "sentence1", "sentence2", "score"])]
    rows += [
        "\t".join([*["x"] * 7, *pair, f"{n}.0"]) for pair, n in zip(pairs, people, strict=True)
    ]
    glue.mkdir()
    for split in ("train", "dev"):
        (glue / f"{split}.tsv").write_text("\n".join(rows) + "\n")
    flags = ("--position-encoding", "none", "--updates", 1)
    transplant(source, text, tmp_path / "out", *flags)
    result = run(f"{NAME}.evaluate", source, tmp_path / "out", tmp_path)
    assert result.returncode == 0, result.stderr
    found = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    model = transformers.AutoModel.from_pretrained(source).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    cut = {"return_tensors": "pt", "truncation": True, "max_length": 64}
    with torch.no_grad():
        means = [
            [model(**tokenizer(each, **cut))[0][0].mean(0) for each in pair] for pair in pairs
        ]
    cosines = [float(torch.cosine_similarity(*pair, dim=0)) for pair in means]
    expected = 100 * spearmanr(cosines, people).statistic
    assert abs(found["sts_b_of_source"] - expected) < 0.5
    # Without positions, the order of words does not matter.
    assert found["shuffled"]["gap"] > 0


def test_comparison_with_its_source(released_bert, tmp_path, capsys, monkeypatch):
    """Pairs whose words are in another order, and times; here of a model and itself."""
    text = write_lines(tmp_path / "lines.txt")
    monkeypatch.setattr(compare, "LINES", 20)
    monkeypatch.setattr(compare, "ROUNDS", 1)
    compare.main([str(released_bert), str(released_bert), str(text)])
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if " | " in line]
    cosines = [(row[2], row[3].rstrip(" |")) for row in rows if row[0].startswith("| a ")]
    cosines += [(row[2], row[3].rstrip(" |")) for row in rows if row[0].startswith("| the ")]
    assert len(cosines) == len(compare.PAIRS)
    assert all(one == other for one, other in cosines)
    ways = [f'| optimize, "{each}"' for each in ("fp32", "bf16", "int8")]
    assert [row[0] for row in rows[-4:]] == ["| as it is", *ways]
