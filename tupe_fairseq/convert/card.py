"""The model card of a directory for transformers: README.md, as the Hugging Face Hub shows it."""

from typing import Any

from .models import Converted

#: Pipeline and kind of model of each Auto class, by its name after "AutoModelFor"; "": AutoModel.
TASKS = {
    "": ("feature-extraction", "an encoder"),
    "MaskedLM": ("fill-mask", "a masked language model"),
    "SequenceClassification": ("text-classification", "a sequence classifier"),
    "TokenClassification": ("token-classification", "a token classifier"),
    "QuestionAnswering": ("question-answering", "a model for question answering"),
}
LICENCES = "https://huggingface.co/docs/hub/repositories-licenses"
UNKNOWN = "not recorded"


def model_card(converted: Converted, model: Any, tokenizer: bool, code: bool) -> str:
    """The text of README.md, for the same model here and in transformers.

    `tokenizer` and `code` say whether the directory has a tokenizer and the code of the model.
    """
    task = type(model).__name__.partition("For")[2]
    encoding = converted.settings["position_encoding"]
    pipeline, kind = TASKS[task]
    return "\n".join(
        [
            "---",
            "library_name: transformers",
            f"pipeline_tag: {pipeline}",
            "tags:\n- tupe_fairseq\n- position-encoding",
            f"# license: yours to choose and to enter here, see {LICENCES}",
            "---",
            f"# {kind.capitalize()} with the position encoding `{encoding}`",
            "",
            "Written by tupe_fairseq, a plugin of fairseq for position encodings.",
            "",
            "| | |",
            "|---|---|",
            *(f"| {name} | {value} |" for name, value in _rows(converted, model)),
            "",
            "## How to load",
            "",
            "```python",
            *_loading(task, tokenizer, code),
            "```",
            "",
            *([_TRUST, ""] if code else []),
            "## To be completed",
            "",
            "The licence, a description of the data, what the model is for, and its limits.",
            "",
        ]
    )


_TRUST = (
    "`trust_remote_code=True` runs the Python files of this directory. They need torch and "
    "transformers, and nothing else."
)


def _rows(converted: Converted, model: Any) -> list[tuple[str, str]]:
    """What is known, by name."""
    config = model.config
    trained = converted.training
    settings = converted.settings
    options = getattr(config, "position_options", None) or {}
    listed = ", ".join(f"{name} {value}" for name, value in options.items())
    size = sum(parameter.numel() for parameter in model.parameters())
    updates = f"{trained['updates']:,} updates" if "updates" in trained else UNKNOWN
    data = f"`{trained['data']}`, the name of its folder or file" if "data" in trained else UNKNOWN
    return [
        *([("made from", trained["origin"])] if "origin" in trained else []),
        ("position encoding", f"`{settings['position_encoding']}`"),
        *([("its options", listed)] if listed else []),
        (
            "layers, width, heads",
            f"{config.num_hidden_layers}, {config.hidden_size}, {config.num_attention_heads}",
        ),
        ("longest text", f"{settings['max_position_embeddings']} tokens"),
        ("parameters", f"{size:,}"),
        ("data", data),
        ("training", updates),
        ("validation", trained.get("validation", UNKNOWN)),
    ]


def _loading(task: str, tokenizer: bool, code: bool) -> list[str]:
    """The lines of Python that load the model."""
    auto = f"AutoModelFor{task}" if task else "AutoModel"
    trust = ", trust_remote_code=True" if code else ""
    names = f"{auto}, AutoTokenizer" if tokenizer else auto
    lines = [
        f"from transformers import {names}",
        "",
        'name = "DIRECTORY"  # this one, or its name on the Hub',
    ]
    lines += [f"model = {auto}.from_pretrained(name{trust})"]
    if tokenizer:
        lines.append(f"tokenizer = AutoTokenizer.from_pretrained(name{trust})")
    return lines
