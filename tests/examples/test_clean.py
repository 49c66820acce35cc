"""examples/pretraining/clean.py: what goes wrong with users' text."""

import bz2
import gzip
import lzma

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.pretraining import clean
from tupe_fairseq import UsageError

ARTICLES = """<doc id="1" url="u" title="A &amp; B">
A & B

First   paragraph, with &lt;br&gt; a <br>break.

Second paragraph.
</doc>
<doc id="2" url="u" title="Redirect">
Redirect
</doc>
<doc id="3" url="u" title="C">
C

A &lt; b.
</doc>
"""


def cleaned(path, out, *flags) -> dict[str, list[str]]:
    """Lines of the splits."""
    clean.main([str(path), "--out", str(out), "--workers", "1", *flags])
    names = ["preprocessing.json", "train.txt", "valid.txt"]
    assert sorted(file.name for file in out.iterdir()) == names
    return {
        split: (out / f"{split}.txt").read_text(encoding="utf-8").split("\n")[:-1]
        for split in ("train", "valid")
    }


def lines_of(content: bytes, tmp_path, *flags, name="text") -> list[str]:
    """Lines that become of a file, none held out."""
    (tmp_path / name).write_bytes(content)
    return cleaned(tmp_path / name, tmp_path / "out", "--valid-share", "0", *flags)["train"]


def test_articles_lose_tags_titles_and_markup(tmp_path):
    expected = ["first paragraph, with a break.", "second paragraph.", "a < b."]
    assert lines_of(ARTICLES.encode(), tmp_path) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"One\r\nTwo\rThree\n\n\n Four", ["One", "Two", "Three", "Four"]),
        (b"\xef\xbb\xbfOne\x00 \t two\xc2\xa0three\x0c\n", ["One two three"]),
        ("a\u2028b\x85c\n".encode(), ["a b c"]),
        (b"good\nbad \xff\xfe\nalso good\n", ["good", "also good"]),
        (b"if a < b and b > c: <b>\n", ["if a < b and b > c: <b>"]),
        (b"end of an article</doc>\n</doc>\n", ["end of an article</doc>"]),
    ],
)
def test_lines(content, expected, tmp_path):
    assert lines_of(content, tmp_path, "--cased") == expected


def test_lost_lines_are_counted(tmp_path, capsys):
    lines_of(b"good\n\xff\n\xfe\n", tmp_path)
    assert "2 dropped (not UTF-8)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "pack"),
    {"text.gz": gzip.compress, "text.bz2": bz2.compress, "TEXT.XZ": lzma.compress}.items(),
)
def test_packed_files(name, pack, tmp_path):
    packed = pack(ARTICLES.encode())
    assert len(lines_of(packed, tmp_path, name=name)) == 3
    with pytest.raises(UsageError, match=f"cannot read .*{name}"):
        lines_of(packed[:-20], tmp_path, name=name)
    with pytest.raises(UsageError, match=f"cannot read .*{name}"):
        lines_of(b"not packed at all", tmp_path, name=name)
    assert lines_of(pack("\ufeffGood\r\n".encode()), tmp_path, name=name) == ["good"]
    with pytest.raises(UsageError, match=f"{name} is UTF-16: convert it by iconv -f utf-16"):
        lines_of(pack("Good\n".encode("utf-16")), tmp_path, name=name)


def test_file_without_line_ends(tmp_path, monkeypatch):
    """Read and written in parts, none of which cuts a word."""
    monkeypatch.setattr(clean, "CHUNK", 64)
    words = [f"word{i}" for i in range(1000)]
    lines = lines_of(" ".join(words).encode(), tmp_path, "--longest", "40")
    assert max(map(len, lines)) <= 40
    assert " ".join(lines).split() == words


@given(st.text("ab ", max_size=60), st.integers(1, 20))
def test_cut_keeps_all_characters_but_the_spaces_between(text, longest):
    text = " ".join(text.split())
    parts = list(clean.cut(text, longest))
    assert all(0 < len(part) <= longest and part == part.strip() for part in parts)
    assert "".join(parts).replace(" ", "") == text.replace(" ", "")
    if all(len(word) <= longest for word in text.split()):
        assert " ".join(parts) == text


def test_held_out_documents_do_not_depend_on_files(tmp_path):
    documents = [f"document {i}\nits second line {i}\n\n" for i in range(400)]
    (tmp_path / "one").mkdir()
    (tmp_path / "one/all").write_text("".join(documents))
    (tmp_path / "many").mkdir()
    for i in range(4):
        (tmp_path / f"many/part{3 - i}").write_text("".join(documents[i::4]))
    share = ("--valid-share", "0.2")
    one = cleaned(tmp_path / "one", tmp_path / "a", *share)
    many = cleaned(tmp_path / "many", tmp_path / "b", *share, "--workers", "2")
    assert {split: sorted(one[split]) for split in one} == {s: sorted(many[s]) for s in many}
    assert 40 <= len(one["valid"]) / 2 <= 120
    numbers = {split: {line.split()[-1] for line in one[split]} for split in one}
    assert not numbers["train"] & numbers["valid"]


def test_second_call_goes_on_with_missing_parts(tmp_path, monkeypatch):
    for name in "abc":
        (tmp_path / name).write_text(f"text of {name}\n")
    files = [str(tmp_path / name) for name in "abc"]
    out = tmp_path / "out"
    arguments = [*files, "--out", str(out), "--workers", "1", "--valid-share", "0"]

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(clean, "_check", stop)
        with pytest.raises(KeyboardInterrupt):
            clean.main(arguments)
    assert not (out / "train.txt").exists()
    (parts,) = out.iterdir()
    (parts / "000000.train").write_text("kept\n")
    (parts / "000001.json").unlink()
    (parts / "000001.train").write_text("hal")
    clean.main(arguments)
    assert (out / "train.txt").read_text() == "kept\ntext of b\ntext of c\n"
    clean.main([*arguments, "--cased"])
    assert (out / "train.txt").read_text() == "text of a\ntext of b\ntext of c\n"


@pytest.mark.parametrize(
    ("files", "flags", "message"),
    [
        ({}, (), "holds no files"),
        ({".hidden": b"text"}, (), "holds no files"),
        ({"a": b"\n\n \n"}, (), "INPUT holds no text"),
        ({"a": b"\xff\n"}, (), "1 lines are not UTF-8"),
        ({"a": b"one\n"}, (), "--valid-share 0.01 holds out no document"),
        ({"a.tar.xz": b""}, (), "is an archive"),
        ({"a": b"one\n"}, ("--valid-share", "1"), "--valid-share must lie"),
        ({"a": b"one\n"}, ("--longest", "0"), "--longest and --workers"),
    ],
)
def test_mistakes(files, flags, message, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    with pytest.raises(UsageError, match=message):
        clean.main([str(folder), "--out", str(tmp_path / "out"), *flags])
    assert not (tmp_path / "out/train.txt").exists()


def test_missing_input_is_named(tmp_path):
    with pytest.raises(UsageError, match="'nowhere' does not exist"):
        clean.main(["nowhere", "--out", str(tmp_path)])
