"""The quickstart's parts that need no network: reading the labelled text, and its steps."""

import io
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from examples.quickstart import lengths, losses, own_text, prepare, report
from tests import ROOT
from tupe_fairseq import UsageError


def sdist(path: Path, snippets: dict[str, list[str]]) -> Path:
    """A source distribution of the form that prepare.py reads."""
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w:gz") as archive:
        for name, lines in snippets.items():
            add(archive, f"hutto_ICWSM_2014/{name}_GroundTruth.txt", "\n".join(lines).encode())
    with tarfile.open(path, "w:gz") as archive:
        add(archive, f"vaderSentiment-3.3.2/{prepare.ARCHIVE}", inner.getvalue())
    return path


def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def test_splits(tmp_path):
    """Classes balanced alike, ties left out, no test review in any text one trains on."""
    reviews = [f"{i}\t{score}\tFilm {i}, {score}!" for i in range(100) for score in (-1, 0, 2)]
    others = {name: [f"1\t1\tFilm {i}, 2" for i in range(50)] for name in prepare.SETS[1:]}
    made = sdist(tmp_path / "v.tar.gz", {prepare.REVIEWS: reviews, **others})
    prepare.main(str(made), str(tmp_path / "out"))
    read = {p.name: p.read_text().splitlines() for p in (tmp_path / "out").iterdir()}
    for split, size in (("test", 10), ("valid", 5), ("train", 85)):
        assert sorted(read[f"{split}.label"]) == ["0"] * size + ["1"] * size
        for label, line in zip(read[f"{split}.label"], read[f"{split}.input0"], strict=True):
            assert ("2!" in line) is (label == "1")
            assert "0!" not in line
    unseen = {prepare.letters(line) for line in read["test.input0"]}
    for name in ("pretrain.train", "pretrain.valid", "train.input0", "valid.input0"):
        assert not unseen & {prepare.letters(line) for line in read[name]}


def test_a_review_with_both_labels_is_in_one_split():
    reviews = [prepare.Snippet(1, f"Film {i}") for i in range(200)]
    reviews += [prepare.Snippet(-1, f"film {i}!") for i in range(0, 200, 2)]
    splits = prepare.split_reviews(reviews)
    kept = [prepare.letters(line) for pairs in splits.values() for line, _ in pairs]
    assert len(kept) == len(set(kept)) == 200
    assert {len(pairs) for pairs in splits.values()} == {20, 10, 170}


LOSSES = {
    "updates": list(range(100, 1900, 100)),
    "bits": {"tupe_r": [8 - i / 8 for i in range(18)], "learned": [8.0] * 18},
    "context_free": 7.91,
}


def test_closing_table():
    results = {
        "test_sentences": 10,
        "accuracy": 74.0,
        "majority_accuracy": 50.4,
        "masks": {"a <mask> film.": {"good": 0.25, "great": 0.1}},
    }
    longer = {"tokens": [32, 497], "bits": {"tupe_r": [5.5, 5.25], "learned": [7.5, 9.0]}}
    rendered = report.render(LOSSES, results, longer, Path(".quickstart"))
    for part in (
        "74.0 %",
        "50.4 %",
        "good (25 %), great (10 %)",
        "bash scripts/test.sh",
        "without context: 7.91",
    ):
        assert part in rendered
    rows = [line.split() for line in rendered.splitlines()]
    assert [row[0] for row in rows if row[-2:-1] == ["8.00"]] == [
        "300",
        "600",
        "900",
        "1,200",
        "1,500",
        "1,800",
    ]
    assert ["1,800", "5.88", "8.00", "2.12"] in rows
    assert ["497", "5.25", "9.00"] in rows
    own = report.render(LOSSES, None, None, Path(".quickstart-text"))
    assert "1,800     5.88     8.00        2.12" in own
    assert "accuracy" not in own
    assert ".quickstart-text/models/pretrained" in own


def test_losses_are_read_where_both_trainings_have_them(tmp_path, toy_masked_lm_data):
    for name, bits in (("tupe_r", [5, 4]), ("learned", [6, 5, 3])):
        (tmp_path / name).mkdir()
        entries = [{"valid_loss": str(b), "valid_num_updates": str(n)} for n, b in enumerate(bits)]
        rows = [f"2026 | INFO | valid | {json.dumps(entry)}" for entry in entries]
        # A resumed training repeats an update.
        (tmp_path / name / "log.txt").write_text("\n".join([*rows, "", rows[0]]))
    found = losses.read_losses(tmp_path, toy_masked_lm_data)
    assert found["updates"] == [0, 1]
    assert found["bits"] == {"tupe_r": [5, 4], "learned": [6, 5]}
    losses.draw(found, tmp_path / "losses.png", "python made it")
    assert b"python made it" in (tmp_path / "losses.png").read_bytes()
    (tmp_path / "learned" / "log.txt").write_text("")
    with pytest.raises(UsageError, match="no validations in common"):
        losses.read_losses(tmp_path, toy_masked_lm_data)


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--frsh"], 2, "unknown argument --frsh; there are --fresh and --text FILE."),
        (["--text"], 1, "--text lacks its FILE."),
        (["--text", "no.txt"], 1, "--text is no.txt, but there is no such file to read."),
    ],
)
def test_invalid_arguments_are_refused(words, status, message):
    """Before anything is done, but after .venv, which these tests run in or need not have."""
    script = (ROOT / "scripts/quickstart.sh").read_text().replace("source scripts/env", ": env")
    script = script.replace('cd "$(dirname "${BASH_SOURCE[0]}")/.."', f"cd {ROOT}")
    script = "fail() { printf 'error: %s\\n' \"$*\" >&2; exit 1; }\n" + script
    ended = subprocess.run(
        ["bash", "-s", "--", *words], input=script, capture_output=True, text=True, check=False
    )
    assert ended.returncode == status
    assert ended.stderr == f"error: {message}\n"


def test_own_text(tmp_path):
    file = tmp_path / "own.txt"
    lines = [f"Sentence {i}\u2028goes  ON &amp; on." for i in range(400)]
    file.write_text("\n\n".join(lines), encoding="utf-8")
    found = own_text.read(file)
    assert found == [f"sentence {i} goes on & on." for i in range(400)]
    # With the mark that some editors put first.
    file.write_text("\n".join(lines), encoding="utf-8-sig")
    assert own_text.read(file) == found
    file.write_text("\n".join(lines[:199]), encoding="utf-8")
    with pytest.raises(UsageError, match=r"own.txt' with 199 lines, but at least 200 are needed"):
        own_text.read(file)
    file.write_bytes(b"a\n" * 300 + b"caf\xe9\n")
    with pytest.raises(UsageError, match=r"line 301 is not UTF-8, .*: convert it"):
        own_text.read(file)


def test_own_text_that_needs_too_much_memory(tmp_path):
    """A file without blocks on the disk; of the largest size allowed, it is not UTF-8."""
    file = tmp_path / "own.txt"
    file.write_bytes(b"\xff")
    os.truncate(file, 3 << 30)
    with pytest.raises(UsageError, match=r"own\.txt', which has 3,221 MB\..* 256 MB") as told:
        own_text.read(file)
    assert "examples/pretraining/README.md" in str(told.value)
    assert "\n" not in str(told.value)
    os.truncate(file, 256_000_000)
    with pytest.raises(UsageError, match="not UTF-8"):
        own_text.read(file)


def test_longer_texts(in_quickstart, toy_masked_lm_data, monkeypatch):
    """With the paths of quickstart.sh: fairseq reads those that begin with a dot otherwise."""
    shutil.copytree(toy_masked_lm_data, ".quickstart/data/pretrain")
    words = [".quickstart/models", ".quickstart/data/pretrain", ".quickstart/lengths"]
    monkeypatch.setattr("sys.argv", ["lengths", *words])
    lengths.main()
    found = json.loads(Path(".quickstart/lengths/lengths.json").read_text())
    assert found["tokens"] == [32, 63, 125, 249, 497]
    assert {len(found["bits"][name]) for name in ("tupe_r", "learned")} == {5}
