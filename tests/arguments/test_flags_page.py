"""The page of flags says what the programs do."""

import argparse
import re
import runpy
from argparse import Namespace

import pytest
from fairseq import options

from tests import ROOT
from tests.arguments.test_completion import SPECIFICATIONS
from tests.toy_data import Task
from tupe_fairseq.arguments.completion import completed
from tupe_fairseq.errors import ConfigurationError

PAGE = ROOT / "tupe_fairseq" / "arguments" / "README.md"
TASKS = {
    "tupe_roberta": "masked_lm",
    "tupe_transformer": "translation",
    "tupe_transformer_lm": "language_modeling",
}


def parsed(arch: str, *flags: str) -> dict[str, object]:
    """As fairseq-train parses them."""
    words = ["data", "--arch", arch, "--task", TASKS[arch], *flags]
    return vars(options.parse_args_and_arch(options.get_training_parser(), words))


def rows(heading: str, arch: str) -> list[list[str]]:
    """The cells of the rows that are about a model, with the names of flags as in Python."""
    section = PAGE.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    found = re.findall(r"^\| `--([\w-]+)` \| ([^|]+) \| ([^|]+) \|", section, re.M)
    return [
        [name.replace("-", "_"), third]
        for name, models, third in found
        if models == "all" or f"`{arch}`" in models
    ]


def test_page_is_up_to_date():
    """Otherwise: python scripts/list_flags.py > tupe_fairseq/arguments/README.md."""
    assert runpy.run_path(str(ROOT / "scripts" / "list_flags.py"))["page"]() == PAGE.read_text()


@pytest.mark.parametrize("arch", TASKS)
def test_defaults_are_those_of_fairseq_train(arch):
    found = parsed(arch)
    own = rows("Positions and attention", arch)
    assert len(own) == (9 if arch == "tupe_roberta" else 7)
    for name, default in own:
        assert default == ("-" if found[name] is None else str(found[name])), name


def test_flags_of_true_or_false_have_two_forms():
    assert parsed("tupe_roberta", "--compile-layers")["compile_layers"] is True
    assert parsed("tupe_roberta", "--no-compile-layers")["compile_layers"] is False


@SPECIFICATIONS
def test_flags_that_are_not_supported(spec):
    parser = argparse.ArgumentParser()
    spec.add_flags(parser)
    known = vars(parser.parse_args([]))
    listed = rows("Flags of fairseq's models", spec.name)
    assert listed
    for name, way_out in listed:
        assert name in known
        with pytest.raises(ConfigurationError) as error:
            completed(spec, Namespace(**{"position_encoding": "deberta", name: 2}), Task())
        assert str(error.value).endswith(f"does not support it: {way_out}.")
