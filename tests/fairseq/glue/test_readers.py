"""The official TSV files of GLUE, with their oddities."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.glue.readers import Example, read_rows, read_split
from examples.glue.tasks import TASKS, Split
from tests.fairseq.glue.samples import OFFICIAL, ROOT, write
from tupe_fairseq import UsageError

SPLITS = [(task, split) for task in TASKS.values() for split in task.splits]
REAL = ROOT.parent / "shared" / "data" / "glue_data"


def read(folder, task: str, name: str):
    (split,) = (split for split in TASKS[task].splits if split.name == name)
    return read_split(folder, TASKS[task], split)


@pytest.fixture
def download(tmp_path):
    return write(tmp_path, OFFICIAL)


def test_table_has_the_official_files():
    """Nine tasks, eleven files to hand in, each file of the samples read by one split."""
    assert len(TASKS) == 9
    assert len({split.submission for _, split in SPLITS if split.submission}) == 11
    assert {file for _, split in SPLITS for file in split.files} >= set(OFFICIAL)


@pytest.mark.parametrize(("task", "split"), SPLITS, ids=lambda value: value.name)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_every_official_file_is_read(task, split, end, tmp_path):
    found = read_split(write(tmp_path, OFFICIAL, end), task, split)
    for example in found.examples:
        assert len(example.sentences) == len(task.sentences)
        assert not any("\r" in text or "\t" in text for text in example.sentences)
        assert (example.label is None) == bool(split.submission)
    if split.name == "train":
        found_labels = {example.label for example in found.examples}
        assert found_labels == (set(task.labels) or {"5.000", "1.25"})


def test_quotes_are_characters(download):
    assert read(download, "CoLA", "train").examples == [
        Example(('Our friends say "no.',), "1"),
        Example(("They drank the pub.",), "0"),
    ]
    assert read(download, "MRPC", "train").examples[0].sentences == (
        'He called "the witness".',
        'Only "the witness.',
    )


def test_rows_that_cannot_be_examples_are_counted(download):
    found = read(download, "QQP", "train")
    assert (len(found.examples), found.left_out) == (2, Counter({"too few columns": 1}))
    found = read(download, "MNLI", "train")
    assert (len(found.examples), found.left_out) == (3, Counter({"label '-'": 1}))


@pytest.mark.parametrize(
    ("label", "reason"),
    [("", "no label"), ("nan", "label 'nan'"), ("5.1", "label '5.1'"), ("x", "label 'x'")],
)
def test_similarity_that_is_none(label, reason, tmp_path):
    text = OFFICIAL["STS-B/train.tsv"].replace("1.25", label)
    found = read(write(tmp_path, {"STS-B/train.tsv": text}), "STS-B", "train")
    assert (len(found.examples), found.left_out) == (1, Counter({reason: 1}))


def test_no_row_of_a_test_set_is_lost(download):
    assert read(download, "QQP", "test").examples == [
        Example(("Would it?", "Will it?"), None),
        Example(("Cut off", ""), None),
    ]


def test_test_set_in_another_order_is_refused(tmp_path):
    text = "index|sentence\n1|The car honked.\n0|Bill.\n"
    with pytest.raises(UsageError, match="row 0 has the index '1'"):
        read(write(tmp_path, {"CoLA/test.tsv": text}), "CoLA", "test")


def test_byte_order_mark_and_empty_lines(tmp_path):
    text = "\ufeff" + OFFICIAL["RTE/train.tsv"] + "\n\n"
    assert len(read(write(tmp_path, {"RTE/train.tsv": text}), "RTE", "train").examples) == 2


def test_mrpc_as_microsoft_gives_it(tmp_path):
    header = "\ufeffQuality|#1 ID|#2 ID|#1 String|#2 String\n"
    files = {
        "MRPC/msr_paraphrase_train.txt": header + "1|10|20|A.|B.\n0|30|40|C.|D.\n1|5|6|E.|F.\n",
        "MRPC/msr_paraphrase_test.txt": header + "1|7|8|G.|H.\n",
    }
    folder = write(tmp_path, files, end="\r\n")
    with pytest.raises(UsageError, match=r"no dev_ids\.tsv"):
        read(folder, "MRPC", "valid")
    write(folder, {"MRPC/dev_ids.tsv": "30|40\n"})
    assert read(folder, "MRPC", "valid").examples == [Example(("C.", "D."), "0")]
    assert [e.sentences[0] for e in read(folder, "MRPC", "train").examples] == ["A.", "E."]
    assert read(folder, "MRPC", "test").examples == [Example(("G.", "H."), None)]
    write(folder, {"MRPC/msr_paraphrase_train.txt": header.replace("#1 ID", "ID") + "1|1|2|A.|B."})
    with pytest.raises(UsageError, match=r"train\.txt has no column #1 ID; it has Quality, ID"):
        read(folder, "MRPC", "train")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("index|premise|sentence2|label\n0|a|b|entailment\n", "has no column sentence1; it has"),
        ("index|sentence1|sentence2|label\n", "holds no example"),
        ("", "holds no example"),
        ("index|sentence1|sentence2|label\n0|a|b|maybe\n", "holds no example"),
    ],
)
def test_file_of_another_form_is_refused(text, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        read(write(tmp_path, {"RTE/train.tsv": text}), "RTE", "train")


def test_file_that_is_no_utf8_is_refused(tmp_path):
    folder = write(tmp_path, {"RTE/train.tsv": OFFICIAL["RTE/train.tsv"]})
    with (folder / "RTE/train.tsv").open("ab") as file:
        file.write(b"2\t\xff\tb\tentailment\n")
    with pytest.raises(UsageError, match="not UTF-8"):
        read(folder, "RTE", "train")


def test_missing_file_is_no_error(tmp_path):
    assert read(tmp_path, "RTE", "test") is None


field = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\r\n"))
rows = st.lists(st.tuples(field, field), min_size=1)


@given(rows, st.sampled_from(["\n", "\r\n"]))
def test_any_text_is_read_as_it_is(tmp_path_factory, rows, end):
    """Whatever stands in a field: quotes, rare line separators, commas."""
    path = tmp_path_factory.mktemp("rows") / "x.tsv"
    lines = "".join(f"{i}\t{a}\t{b}{end}" for i, (a, b) in enumerate(rows))
    path.write_bytes(lines.encode())
    found = list(read_rows(path, "index\ta\tb"))
    assert [(row["a"], row["b"]) for row in found] == rows
    assert all("" not in row for row in found)


@given(st.integers(1, 8))
def test_rows_of_other_lengths_are_marked(tmp_path_factory, columns):
    path = tmp_path_factory.mktemp("rows") / "x.tsv"
    path.write_text("\t".join("x" * columns) + "\n")
    (row,) = read_rows(path, "a\tb\tc\td")
    why = {True: "too few columns", False: "too many columns"}
    assert row.get("") == (None if columns == 4 else why[columns < 4])
    assert [row[name] for name in "abcd"] == ["x"] * min(columns, 4) + [""] * max(4 - columns, 0)


@pytest.mark.real_data
@pytest.mark.parametrize(("task", "split"), SPLITS, ids=lambda value: value.name)
def test_real_file_has_the_official_count(task, split: Split):
    found = read_split(REAL, task, split) if REAL.is_dir() else None
    if found is None:
        pytest.skip(f"{' or '.join(split.files)} is not in {REAL}")
    assert len(found.examples) == split.count
    assert not found.left_out
