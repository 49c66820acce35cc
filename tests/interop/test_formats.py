"""The table of conversions: listings, options, and a format added by one entry."""

import re
from pathlib import Path

import pytest
import torch

from tests.interop import release
from tests.interop.samples import refused, run
from tupe_fairseq import UsageError
from tupe_fairseq.interop import directory, models
from tupe_fairseq.interop.check import outputs_of
from tupe_fairseq.interop.conversion import CONVERSIONS, Conversion, register
from tupe_fairseq.interop.convert import convert
from tupe_fairseq.position import Option

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def test_readme_lists_every_conversion():
    lines = re.findall(r"^python scripts/convert_checkpoint.py (.*)$", README, flags=re.MULTILINE)
    assert [" ".join(line.split()) for line in lines] == [
        each.command for _, each in CONVERSIONS.items()
    ]


def test_help_lists_every_conversion(capsys):
    with pytest.raises(SystemExit):
        convert(["--help"])
    text = capsys.readouterr().out
    for key, each in CONVERSIONS.items():
        assert each.command in text
        assert each.summary in text
        for option in each.options:
            told = rf"with [^:]*{key}\b[^:]*: {re.escape(option.help)}"
            assert re.search(told, " ".join(text.split()))
            assert option.flag in text


@pytest.fixture
def added():
    """A format that is read and written and has an option."""

    def read(source, dictionary, suffix="pt"):
        return models.Converted(**torch.load(f"{source}/m.{suffix}", weights_only=False))

    def write(converted, out, suffix="pt"):
        flat = {n: v for n, v in converted.settings.items() if not isinstance(v, list)}
        with directory.building(out) as folder:
            torch.save({**vars(converted), "settings": flat}, folder / f"m.{suffix}")

    def outputs(path, converted, head):
        read_back = read(path, None, "bin")
        model = models.build(read_back.settings, read_back.entries, {})
        model.load_state_dict(read_back.state)
        return outputs_of(model, head)

    options = (Option("suffix", str, None, "of the file"),)
    for flag, function in (("--from", read), ("--to", write)):
        register(Conversion(flag, "pickle", "a pickle of everything", function, outputs, options))
    yield
    for flag in ("--from", "--to"):
        del CONVERSIONS._entries[f"{flag} pickle"]


def test_an_added_format_is_read_written_and_compared(added, tmp_path):
    start = release.write(tmp_path / "release")
    ours, there, flags = tmp_path / "ours", tmp_path / "there", ("--suffix", "bin", "--check")
    run("--from", "tupe-official", start, ours)
    assert run("--to", "pickle", ours, there, *flags)[-1].startswith("logits")
    assert run("--from", "pickle", there, tmp_path / "back", *flags)[-1].startswith("logits")
    with refused("--suffix belongs to --from pickle or --to pickle"):
        run("--to", "huggingface", ours, tmp_path / "x", "--suffix", "a")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--to", "huggingface", "--dict", "d.txt"], "--dict belongs to --from"),
        (["--from", "huggingface", "--head", "a"], "--head belongs to --to huggingface"),
        (["--from", "tupe-official", "--seed", "2"], "--seed belongs to --from fairseq-roberta"),
    ],
)
def test_options_of_other_conversions(tmp_path, words, part):
    with pytest.raises(UsageError, match=part):
        convert([*words, str(tmp_path), "--out", str(tmp_path / "out")])
