"""What is handed in to the leaderboard, and its validator."""

import random
import subprocess
import sys
import zipfile

import pytest

from examples.glue.glue_submission import FILES, check, lines_of
from tests.fairseq.glue.samples import GLUE

#: As the leaderboard's sample submission has them.
OFFICIAL = {
    "CoLA.tsv": (1063, ["0", "1"]),
    "SST-2.tsv": (1821, ["0", "1"]),
    "MRPC.tsv": (1725, ["0", "1"]),
    "STS-B.tsv": (1379, ["0.000", "3.333", "5.000"]),
    "QQP.tsv": (390965, ["0", "1"]),
    "MNLI-m.tsv": (9796, ["neutral", "entailment", "contradiction"]),
    "MNLI-mm.tsv": (9847, ["neutral", "entailment", "contradiction"]),
    "QNLI.tsv": (5463, ["entailment", "not_entailment"]),
    "RTE.tsv": (3000, ["entailment", "not_entailment"]),
    "WNLI.tsv": (146, ["0", "1"]),
    "AX.tsv": (1104, ["neutral", "entailment", "contradiction"]),
}


def predictions(name: str) -> str:
    count, words = OFFICIAL[name]
    return lines_of(random.Random(0).choices(words, k=count))


def write(path, texts: dict[str, str]):
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in texts.items():
            archive.writestr(name, text)
    return path


def test_complete_submission_is_accepted(tmp_path):
    path = write(tmp_path / "s.zip", {name: predictions(name) for name in OFFICIAL})
    assert set(FILES) == set(OFFICIAL)
    assert check(path) == ([], [])
    command = [sys.executable, GLUE / "glue_submission.py", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_form_of_a_file():
    assert lines_of(["1", "0"]) == "index\tprediction\n0\t1\n1\t0\n"


@pytest.mark.parametrize(
    ("name", "spoil", "fault"),
    [
        ("CoLA.tsv", lambda t: t.partition("\n")[2], "the header is '0\\t1'"),
        ("CoLA.tsv", lambda t: t + "1063\t1\n", "1,064 predictions, but the test set has 1,063"),
        ("WNLI.tsv", lambda t: t.replace("\n3\t", "\n4\t"), "line 5: '4\\t"),
        ("WNLI.tsv", lambda t: t.replace("\n3\t", "\n3 "), "must begin with 3 and a tab"),
        ("RTE.tsv", lambda t: t.replace("not_", "no_"), "not one of entailment, not_entailment"),
        ("AX.tsv", lambda t: t.replace("neutral", "2"), "'2' is not one of contradiction"),
        ("STS-B.tsv", lambda t: t.replace("5.000", "5.001"), "'5.001' is not a number from 0"),
        ("STS-B.tsv", lambda t: t.replace("5.000", "nan"), "'nan' is not a number from 0 to 5"),
        ("STS-B.tsv", lambda t: t.replace("5.000", "high"), "'high' is not a number"),
    ],
)
def test_fault_is_named(name, spoil, fault, tmp_path):
    faults, missing = check(write(tmp_path / "s.zip", {name: spoil(predictions(name))}))
    assert any(found.startswith(f"{name}: ") and fault in found for found in faults), faults
    assert set(missing) == set(OFFICIAL) - {name}


def test_archive_itself(tmp_path):
    faults, missing = check(write(tmp_path / "s.zip", {"folder/RTE.tsv": predictions("RTE.tsv")}))
    assert faults == ["folder/RTE.tsv: not a file of a submission"]
    assert len(missing) == 11
    command = [sys.executable, GLUE / "glue_submission.py", tmp_path / "s.zip"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "missing, but the leaderboard requires all files: CoLA.tsv" in done.stderr


def test_archive_that_cannot_be_read(tmp_path):
    """No archive, an encrypted file, and one whose compressed part is none."""
    path = tmp_path / "s.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("RTE.tsv", predictions("RTE.tsv"))
        first = archive.getinfo("RTE.tsv").header_offset + 30 + len("RTE.tsv")
    whole = path.read_bytes()
    assert check(path)[0] == []
    # The flags follow 6 bytes after the beginning of a local header and 8 after a central one.
    local = 6
    central = whole.rindex(b"PK\1\2") + 8
    encrypted = bytearray(whole)
    encrypted[local] |= 1
    encrypted[central] |= 1
    damaged = whole[:first] + b"\xff" * 50 + whole[first + 50 :]
    for content, why in ((b"x", "not a zip"), (encrypted, "encrypted"), (damaged, "invalid")):
        path.write_bytes(content)
        (told,), missing = check(path)
        assert told.startswith(f"{path} cannot be read: ")
        assert why in told
        assert missing == []
