"""The reader of text, and every command that reads a text file of the user."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tupe_fairseq.base.errors import DataError
from tupe_fairseq.base.texts import read_lines

#: Characters at which str.splitlines, or text files of Python, would end a line.
RARE = "a\x0bb\x0cc\x1cd\x1ee\x85f\u2028g\u2029h\ri\x00j\tk\ufeffl"


def lines_of(folder: Path, contents: bytes) -> list[str]:
    (folder / "text").write_bytes(contents)
    return list(read_lines(folder / "text"))


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_lines(mark, end, last, tmp_path):
    """Only the mark at the beginning is none of the text; an empty line is a line."""
    texts = ["naïve", "", RARE, '"in ""quotes"""', " x "]
    contents = mark + end.join(text.encode() for text in texts) + end * last
    assert lines_of(tmp_path, contents) == texts


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"))))
def test_any_text(tmp_path_factory, texts):
    texts = ["first", *texts]
    contents = "".join(f"{text}\n" for text in texts).encode()
    assert lines_of(tmp_path_factory.mktemp("text"), contents) == texts


@pytest.mark.parametrize(
    ("contents", "told"),
    [
        (b"a\r\n\ncaf\xe9\nb\n", r"line 3 is not UTF-8, byte 0xe9 at 3: .* iconv -f latin1"),
        ("a\nb\n".encode("utf-16"), "line 1 is not UTF-8, byte 0xff at 0: .* iconv -f utf-16"),
        (b"\xed\xa0\x80", "line 1 is not UTF-8"),
        (b"a\ncut \xe2\x82", "line 2 is not UTF-8, byte 0xe2 at 4"),
    ],
)
def test_other_encodings(contents, told, tmp_path):
    """The line is named, and how to convert it."""
    with pytest.raises(DataError, match=told):
        lines_of(tmp_path, contents)


def test_files_that_cannot_be_read(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(DataError, match=r"--text is 'x': cannot be read: \w"):
            list(read_lines(path, "--text is 'x'"))
