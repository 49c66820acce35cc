"""Flags: they arrive in encodings, and the page that lists them says what the programs do."""

import argparse
import re
import runpy
from argparse import Namespace

import pytest
from fairseq import options
from fairseq.models import ARCH_MODEL_REGISTRY
from omegaconf import OmegaConf

from tests import ROOT
from tests.fairseq.arguments.test_completion import SPECIFICATIONS
from tests.toy_data import Task
from tupe_fairseq.base.errors import ConfigurationError
from tupe_fairseq.fairseq.arguments.completion import completed
from tupe_fairseq.fairseq.arguments.training import TrainingSettings
from tupe_fairseq.position import PositionEncoding, model_options

PAGE = ROOT / "tupe_fairseq" / "fairseq" / "arguments" / "README.md"
TASKS = {
    "tupe_roberta": "masked_lm",
    "tupe_transformer": "translation",
    "tupe_transformer_lm": "language_modeling",
}
#: A value of each option of every encoding that is not its default.
VALUES = {"attention_window": 3, "global_every": 2, "extend_positions": "hierarchical"}


def parsed(arch: str, *flags: str) -> Namespace:
    """As fairseq-train parses them."""
    words = ["data", "--arch", arch, "--task", TASKS[arch], *flags]
    return options.parse_args_and_arch(options.get_training_parser(), words)


def rows(heading: str, arch: str) -> list[list[str]]:
    """The cells of the rows that are about a model, with the names of flags as in Python."""
    section = PAGE.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| `--([\w-]+)` \| ([^|]+) \| ([^|]+) \|", section, re.M)
    return [
        [name.replace("-", "_"), third]
        for name, models, third in cells
        if models == "all" or f"`{arch}`" in models
    ]


@SPECIFICATIONS
def test_options_of_every_encoding_arrive(spec):
    """From flags and from hydra."""
    tiny = f"{spec.name}_tiny"
    names = [each.name for each in model_options()]
    flags = [f"--{name.replace('_', '-')}={VALUES[name]}" for name in names]
    tree = OmegaConf.create({"_name": tiny, **{name: VALUES[name] for name in names}})
    for args in (parsed(spec.name, "--arch", tiny, *flags), tree):
        model = ARCH_MODEL_REGISTRY[tiny].build_model(args, Task())
        encodings = [each for each in model.modules() if isinstance(each, PositionEncoding)]
        assert len(encodings) == len(spec.lengths)
        for encoding in encodings:
            for each in model_options():
                assert getattr(encoding.shape, each.name) == VALUES[each.name]


def test_options_of_every_encoding_arrive_from_a_configuration():
    pytest.importorskip("transformers", reason="transformers is not installed")
    from tupe_fairseq.huggingface import TupeConfig
    from tupe_fairseq.huggingface.positions import build_positions

    values = {each.name: VALUES[each.name] for each in model_options()}
    config = TupeConfig.from_dict(TupeConfig(**values).to_dict())
    shape = build_positions(config).shape
    assert {name: getattr(shape, name) for name in values} == values


def test_page_is_up_to_date():
    """Otherwise: python scripts/list_flags.py > tupe_fairseq/fairseq/arguments/README.md."""
    assert runpy.run_path(str(ROOT / "scripts" / "list_flags.py"))["page"]() == PAGE.read_text()


@pytest.mark.parametrize("arch", TASKS)
def test_defaults_are_those_of_fairseq_train(arch):
    defaults = vars(parsed(arch))
    listed = rows("Positions and attention", arch)
    assert len(listed) == (15 if arch == "tupe_roberta" else 11)
    for name, default in listed:
        assert default == ("-" if defaults[name] is None else str(defaults[name])), name


def test_flags_of_true_or_false_have_two_forms():
    assert parsed("tupe_roberta", "--compile-layers").compile_layers is True
    assert parsed("tupe_roberta", "--no-compile-layers").compile_layers is False


@SPECIFICATIONS
def test_flags_that_are_not_supported(spec):
    parser = argparse.ArgumentParser()
    spec.add_flags(parser)
    known = vars(parser.parse_args([]))
    listed = rows("Flags of fairseq's models", spec.name)
    assert listed
    for name, way_out in listed:
        assert name in known
        args = Namespace(**{"position_encoding": "deberta", name: 2})
        with pytest.raises(ConfigurationError) as error:
            completed(spec, args, TrainingSettings(), Task())
        assert str(error.value).endswith(f"does not support it: {way_out}.")
