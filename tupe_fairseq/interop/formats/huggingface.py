"""Directories of Hugging Face's `transformers`: config.json and model.safetensors.

A model with the encoding `learned` is RoBERTa of transformers (`roberta_classes.py`); every other
is written with its own code (`tupe_classes.py`), and `learned` too with --classes tupe. BERT is
read (`bert_classes.py`).
"""

from pathlib import Path
from typing import Any

from torch import Tensor

from ...errors import CheckpointError, ConfigurationError
from ...extras import import_extra
from ...position import POSITION_ENCODINGS, Option
from .. import bert_classes, roberta_classes, tupe_classes
from ..conversion import Conversion, Forward, register, yes_or_no
from ..dictionaries import read_dictionary
from ..directory import Converted
from ..families import CAUSAL, MASKED
from ..model_files import read_config
from ..shards import read_shards
from ..vocabularies import of_roberta
from ..warm_start import OPTIONS

KIND = roberta_classes.KIND
#: Values of --classes.
CLASSES = ("roberta", "tupe")
#: Models whose parameters do not fit, by model_type, and why.
OTHERS = {
    "modernbert": "ModernBERT normalises before its layers, has gated feed-forward blocks and no "
    "biases, and one matrix for queries, keys and values",
}


def write(
    converted: Converted,
    out: Path,
    head: str | None = None,
    classes: str | None = None,
    lower_case: str | None = None,
) -> None:
    """Write a directory of transformers' RoBERTa or of the classes with their own code.

    Args:
        converted: the model.
        out: the directory; must not exist.
        head: write this classification head instead of the head for masked words.
        classes: "roberta", "tupe" or None for the default of the encoding.
        lower_case: "yes" if the tokenizer is to lower-case texts.

    Raises:
        UsageError: there is no counterpart of the model.
    """
    if classes not in (None, *CLASSES):
        raise ConfigurationError(
            f"--classes is {classes!r}, but must be one of: {', '.join(CLASSES)}."
        )
    lower = yes_or_no(LOWER, lower_case)
    masked = converted.family is MASKED
    if classes == "roberta" and not masked:
        raise ConfigurationError(
            f"--classes is 'roberta', but the model is a {converted.family.what}: use tupe."
        )
    learned = masked and converted.settings["position_encoding"] == "learned"
    if (classes or ("roberta" if learned else "tupe")) == "tupe":
        tupe_classes.write(converted, out, head, lower)
    else:
        roberta_classes.write(converted, out, head, lower)


def read(
    source: str | Path,
    dictionary: str | Path | None = None,
    position_encoding: str | None = None,
    seed: int | None = None,
) -> Converted:
    """Read a directory of RoBERTa, BERT or one of our classes.

    Args:
        source: the directory.
        dictionary: dict.txt in the order of its ids; default: the one in the directory, or for
            RoBERTa and BERT the words of the tokenizer.
        position_encoding: of the new model, if it is a warm start.
        seed: of new parameters of a warm start (default: 1).

    Raises:
        UsageError: it is not such a directory, or its contents do not fit.
    """
    folder = Path(source)
    config = read_config(folder / "config.json")
    kind = config.get("model_type")
    if kind == tupe_classes.MODEL_TYPE:
        if position_encoding or seed is not None:
            raise ConfigurationError(
                f"{source} has an encoding of its own; leave out --position-encoding and --seed."
            )
        return tupe_classes.read(source, dictionary)
    start = (position_encoding or "learned", 1 if seed is None else seed)
    # An unknown name is an error before anything is read.
    POSITION_ENCODINGS[start[0]]
    if kind == "bert":
        bert_classes.refuse_dictionary(dictionary)
        return bert_classes.read(folder, config, _prefixed(read_shards(folder), kind), *start)
    _check_kind(kind, folder / "config.json")
    roberta_classes.check_config(config, folder / "config.json")
    theirs = _prefixed(read_shards(folder), "roberta")
    path = Path(dictionary or folder / "dict.txt")
    if dictionary or path.is_file():
        return roberta_classes.read(folder, config, theirs, read_dictionary(path), *start)
    words = roberta_classes.matrix(theirs, roberta_classes.WORDS_THERE, folder)
    vocabulary = of_roberta(folder, len(words))
    converted = roberta_classes.read(folder, config, theirs, vocabulary.entries, *start)
    converted.files |= vocabulary.files
    converted.notes.append(vocabulary.note)
    return converted


def _check_kind(kind: Any, path: Path) -> None:
    if kind == "roberta":
        return
    if isinstance(kind, str) and kind in OTHERS:
        raise CheckpointError(f"{path} cannot be read: {OTHERS[kind]}.")
    raise CheckpointError(
        f"{path} is not a configuration of RoBERTa, BERT or tupe: its model_type is {kind!r}."
    )


def _prefixed(theirs: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The parameters of a model without a head, whose names lack the prefix."""
    bare = ("embeddings.", "encoder.", "pooler.")
    return {f"{prefix}.{n}" if n.startswith(bare) else n: v for n, v in theirs.items()}


def outputs(directory: Path, converted: Converted, head: str | None) -> Forward:
    """The model of transformers as loaded from the directory.

    Raises:
        UsageError: `transformers` is not installed.
    """
    library = import_extra("transformers", "hf")
    model_type = read_config(Path(directory, "config.json")).get("model_type")
    if model_type == tupe_classes.MODEL_TYPE:
        return tupe_classes.outputs(directory, converted, head)
    if model_type == "bert":
        return bert_classes.outputs(directory, converted, head)
    kind = library.RobertaForSequenceClassification if head else library.RobertaForMaskedLM
    model = kind.from_pretrained(str(directory)).eval()

    def forward(tokens: Tensor) -> tuple[Tensor, ...]:
        out = model(tokens, attention_mask=tokens.ne(1), output_hidden_states=True)
        return (out.logits,) if head else (out.hidden_states[-1], out.logits)

    return forward


SUMMARY = "transformers: RoBERTa for `learned`, a model with its own code for other encodings"
HEAD = Option("head", str, None, "the classification head to write")
CHOICE = Option(
    "classes", str, None, "roberta (default for `learned`) or tupe, which has its own code"
)
BOTH = (MASKED, CAUSAL)
register(Conversion("--from", KIND, SUMMARY, read, outputs, OPTIONS, extra="hf", families=BOTH))
LOWER = Option(
    "lower_case", str, None, "yes: the tokenizer lower-cases texts, as the training data were"
)
WRITING = (HEAD, CHOICE, LOWER)
register(Conversion("--to", KIND, SUMMARY, write, outputs, WRITING, extra="hf", families=BOTH))
