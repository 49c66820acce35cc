"""The table of conversions: listings, options, and a format added by one entry."""

from typing import Annotated

import pytest
import torch

from tests import ROOT
from tests.convert import release
from tests.convert.samples import rebuilt, run
from tests.pages import commands
from tupe_fairseq.convert import directory, models
from tupe_fairseq.convert.command import convert
from tupe_fairseq.convert.conversion import CONVERSIONS, Conversion, Opened, register
from tupe_fairseq.convert.output import building

Suffix = Annotated[str, "of the file"]
PAGE = ROOT / "tupe_fairseq" / "convert" / "README.md"


def test_page_lists_every_conversion():
    lines = [" ".join(words[2:]) for words in commands(PAGE, "python")]
    assert lines == [each.command for _, each in CONVERSIONS.items()]


def test_help_lists_every_conversion(capsys):
    with pytest.raises(SystemExit):
        convert(["--help"])
    text = capsys.readouterr().out
    for _, each in CONVERSIONS.items():
        told = text.partition(each.command)[2].partition("\n  --")[0]
        assert each.summary in told
        for option in each.options:
            assert f"{option.flag}: {option.help}" in told
        assert ("--dict: " in told) == (each.flag == "--from")


@pytest.fixture
def added():
    """A format that is read and written and has an option."""

    def read(source, dictionary, *, suffix: Suffix = "pt"):
        return models.Converted(**torch.load(f"{source}/m.{suffix}", weights_only=False))

    def write(converted, out, *, suffix: Suffix = "pt"):
        with building(out) as folder:
            torch.save(vars(converted), folder / f"m.{suffix}")

    def open_pickle(path, converted, head):
        return Opened(directory.outputs_of(rebuilt(read(path, None, suffix="bin")), head))

    for flag, function in (("--from", read), ("--to", write)):
        register(Conversion(flag, "pickle", "a pickle of everything", function, open_pickle))
    yield
    for flag in ("--from", "--to"):
        del CONVERSIONS._entries[f"{flag} pickle"]


def test_an_added_format_is_read_written_and_compared(added, tmp_path):
    start = release.write(tmp_path / "release")
    ours = tmp_path / "ours"
    there = tmp_path / "there"
    flags = ("--suffix", "bin", "--check")
    run("--from", "tupe-official", start, ours)
    assert run("--to", "pickle", ours, there, *flags)[-1].startswith("logits")
    assert run("--from", "pickle", there, tmp_path / "back", *flags)[-1].startswith("logits")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--to", "huggingface", "--dict", "d.txt"], "unrecognized arguments: --dict"),
        (["--from", "huggingface", "--head", "a"], "unrecognized arguments: --head"),
        (["--from", "tupe-official", "--seed", "2"], "unrecognized arguments: --seed"),
        (["--to", "onnx", "--int8", "maybe"], "argument --int8: invalid choice: 'maybe'"),
        ([], "one of the arguments --from --to is required"),
    ],
)
def test_options_of_other_conversions(tmp_path, words, part, capsys):
    with pytest.raises(SystemExit) as ended:
        convert([*words, str(tmp_path), "--out", str(tmp_path / "out")])
    assert ended.value.code == 2
    assert part in capsys.readouterr().err
