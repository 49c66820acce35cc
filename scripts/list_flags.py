"""Write the page of our flags, and of those of fairseq that are not supported.

    python scripts/list_flags.py > tupe_fairseq/fairseq/arguments/README.md

`fairseq-train --help` does not show flags of models. A test compares the page with the parsers.
"""

import logging
from collections.abc import Iterator

logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)

from examples.shared.markdown import table  # noqa: E402
from tupe_fairseq.fairseq.arguments.roberta import ROBERTA  # noqa: E402
from tupe_fairseq.fairseq.arguments.transformers import LANGUAGE_MODEL, TRANSFORMER  # noqa: E402
from tupe_fairseq.position import POSITION_ENCODINGS, known_options  # noqa: E402

HEADER = """# Flags of the models

`fairseq-train --help` does not show the flags of models. This page lists the flags that the models
add to fairseq's. In hydra, `--position-encoding` is the key `model.position_encoding`. A flag that
is true or false, such as `--tie-cls`, also has the form `--no-tie-cls`.

This page is written by `python scripts/list_flags.py`, and a test compares it with the parsers.
"""
FAIRSEQ = """
## Flags of fairseq's models

`--arch` selects the model and its sizes ([`architectures.py`](architectures.py)). All other flags
and defaults are those of fairseq's model:
[`roberta`](https://github.com/facebookresearch/fairseq/blob/main/fairseq/models/roberta/model.py)
for `tupe_roberta`,
[`transformer`](https://github.com/facebookresearch/fairseq/blob/main/fairseq/models/transformer/transformer_config.py)
for `tupe_transformer`, and
[`transformer_lm`](https://github.com/facebookresearch/fairseq/blob/main/fairseq/models/transformer_lm.py)
for `tupe_transformer_lm`. These are not supported:
"""
MODELS = (ROBERTA, TRANSFORMER, LANGUAGE_MODEL)


def default_of(value: object) -> str:
    """A default in Markdown."""
    return "-" if value is None else f"{value}"


def model_rows() -> Iterator[tuple[str, str, str, str]]:
    """Flags that are no options of single encodings."""
    for option in dict.fromkeys(option for model in MODELS for option in model.options()):
        models = [f"`{model.name}`" for model in MODELS if option in model.options()]
        whose = "all" if len(models) == len(MODELS) else ", ".join(models)
        yield f"`{option.flag}`", whose, default_of(option.default), option.help


def option_rows() -> Iterator[tuple[str, str, str, str]]:
    """Options of encodings."""
    for name, option in known_options().items():
        defaults = {
            encoding: default_of(cls.defaults()[name])
            for encoding, cls in POSITION_ENCODINGS.items()
            if name in cls.defaults()
        }
        default = ", ".join(f"{encoding}: {value}" for encoding, value in defaults.items())
        if len(set(defaults.values())) == 1:
            default = next(iter(defaults.values()))
        if name in TRANSFORMER.option_defaults:
            default = f"{default}; transformers: {TRANSFORMER.option_defaults[name]}"
        yield f"`{option.flag}`", ", ".join(f"`{each}`" for each in defaults), default, option.help


def unsupported_rows() -> Iterator[tuple[str, str, str]]:
    """Flags that a model does not support, with the way out."""
    for entry in dict.fromkeys(entry for model in MODELS for entry in model.unsupported.items()):
        models = [f"`{model.name}`" for model in MODELS if entry in model.unsupported.items()]
        yield f"`--{entry[0].replace('_', '-')}`", ", ".join(models), entry[1]


def page() -> str:
    """The whole page."""
    lines = [HEADER, "## Positions and attention", ""]
    lines += table(("flag", "models", "default", "meaning"), model_rows())
    lines += ["", "## Options of encodings", ""]
    lines += table(("flag", "encodings", "default", "meaning"), option_rows())
    lines += [FAIRSEQ, *table(("flag", "models", "instead"), unsupported_rows())]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
