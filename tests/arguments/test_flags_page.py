"""The page of flags says what the programs do."""

import re
import runpy

import pytest
from fairseq import options

from tests.scripts import ROOT

PAGE = ROOT / "tupe_fairseq" / "arguments" / "README.md"


def test_page_is_up_to_date():
    """Otherwise: python scripts/list_flags.py > tupe_fairseq/arguments/README.md."""
    assert runpy.run_path(str(ROOT / "scripts" / "list_flags.py"))["page"]() == PAGE.read_text()


@pytest.mark.parametrize(
    ("arch", "task"),
    [
        ("tupe_roberta", "masked_lm"),
        ("tupe_transformer", "translation"),
        ("tupe_transformer_lm", "language_modeling"),
    ],
)
def test_defaults_are_those_of_fairseq_train(arch, task):
    """As fairseq-train parses them, with the values that only the data decide left out."""
    parser = options.get_training_parser()
    words = ["data", "--arch", arch, "--task", task]
    found = vars(options.parse_args_and_arch(parser, words))
    text = PAGE.read_text()
    rows = re.findall(r"^\| `--([\w-]+)` \| ([^`|]+) \| ", text.split("## Options")[0], re.M)
    rows += re.findall(r"^\| `--([\w-]+)` \| ([^|]+) \| ", model_section(text, arch), re.M)
    assert len(rows) > 25
    for flag, default in rows:
        value = found.get(flag.replace("-", "_"))
        if not default.startswith("("):
            assert told(default) == told(value), flag


def told(value: object) -> str:
    """As the page has it; a number as a float, and one dash for None, "" and False."""
    text = "-" if value in (None, "") else str(value).replace("False", "-")
    return str(float(text)) if text.replace(".", "", 1).isdigit() else text


def model_section(text: str, arch: str) -> str:
    return text.split(f"## `{arch}`\n")[1].split("\n## ")[0]
