"""Directories of Hugging Face's `transformers`: config.json and model.safetensors.

`architectures/` has a file for each kind of model. A model with the encoding `learned` is written
as RoBERTa; every other is written with its own code (`sources.py`), and `learned` too with
--classes tupe.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import CheckpointError, ConfigurationError
from ...extras import import_extra
from ...position import POSITION_ENCODINGS, Option
from ..architectures import ARCHITECTURES, Architecture
from ..architectures.base import Source
from ..architectures.tupe import settings_of
from ..conversion import Conversion, Forward, register
from ..dictionaries import dictionary_text
from ..directory import building
from ..families import CAUSAL, MASKED
from ..keys import HEAD as NEW_HEAD
from ..keys import to_ours
from ..model_files import FILE, read_json, read_parameters, write_json, write_tensors
from ..models import Converted, imported, known_settings
from ..settings import matrix
from ..sources import AUTO_MAP, collect
from ..vocabularies import Vocabulary
from ..warm_start import OPTIONS, warm_start

KIND = "huggingface"
#: Values of --classes.
CLASSES = ("roberta", "tupe")


def write(
    converted: Converted,
    out: Path,
    head: str | None = None,
    classes: str | None = None,
    lower_case: bool = False,
) -> None:
    """Write a directory of transformers' RoBERTa or of the classes with their own code.

    Args:
        converted: the model.
        out: the directory; must not exist.
        head: write this classification head instead of the language modeling head.
        classes: "roberta", "tupe" or None for the default of the encoding.
        lower_case: the tokenizer lower-cases texts.

    Raises:
        UsageError: there is no counterpart of the model.
    """
    if classes not in (None, *CLASSES):
        raise ConfigurationError(
            f"--classes is {classes!r}, but must be one of: {', '.join(CLASSES)}."
        )
    masked, encoding = converted.family is MASKED, converted.settings["position_encoding"]
    if classes == "roberta" and not masked:
        raise ConfigurationError(
            f"--classes is 'roberta', but the model is a {converted.family.what}: use tupe."
        )
    kind = classes or ("roberta" if masked and encoding == "learned" else "tupe")
    config, tensors = ARCHITECTURES[kind].write(converted, head)
    files = {}
    if kind == "tupe":
        config = {"auto_map": AUTO_MAP, **config}
        files = collect(encoding, known_settings(converted.settings, converted.family))
    with building(out) as folder:
        write_tensors(folder / FILE, tensors)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        write_texts(folder, converted, config, lower_case)


def write_texts(
    folder: Path, converted: Converted, config: dict[str, Any], lower_case: bool
) -> None:
    """Write config.json, dict.txt, and the tokenizer, or note why there is none."""
    settings, family, source = converted.settings, converted.family, converted.folder
    write_json(folder / "config.json", config)
    (folder / "dict.txt").write_text(dictionary_text(converted.entries), encoding="utf-8")
    if source is not None:
        import_extra("tokenizers", "hf")
        from ..tokenizer_json import write_tokenizer

        longest, start = settings[family.longest], family.start(settings)
        note = write_tokenizer(folder, source, converted.entries, longest, lower_case, start)
        converted.notes += [note] if note else []


def read(
    source: str | Path,
    dictionary: str | Path | None = None,
    position_encoding: str = "learned",
    seed: int = 1,
) -> Converted:
    """Read a directory of one of `ARCHITECTURES`.

    The default dictionary is dict.txt in the directory, or for RoBERTa and BERT the tokens of the
    tokenizer. Any other encoding than `learned` is a warm start, with parameters from `seed`.

    Raises:
        UsageError: it is not such a directory, or its contents do not fit.
    """
    # An unknown name is an error before anything is read.
    POSITION_ENCODINGS[position_encoding]
    folder = Path(source)
    config = read_json(folder / "config.json")
    architecture = _architecture(config, folder)
    if architecture.model_type == "tupe" and (position_encoding != "learned" or seed != 1):
        raise ConfigurationError(
            f"{folder} has an encoding of its own; leave out --position-encoding and --seed."
        )
    theirs = _prefixed(read_parameters(folder), architecture.model_type)
    for name in architecture.matrices:
        matrix(theirs, name, folder, KIND)
    found = Source(folder, config, theirs, dictionary, position_encoding == "learned")
    vocabulary = architecture.read(found)
    converted = _converted(found, vocabulary, architecture)
    return warm_start(converted, position_encoding, seed)


def _architecture(config: dict[str, Any], folder: Path) -> Architecture:
    kind = str(config.get("model_type"))
    if kind not in ARCHITECTURES:
        raise CheckpointError(
            f"{folder / 'config.json'} has the model_type {kind!r}; those that can be read are: "
            f"{', '.join(ARCHITECTURES)}."
        )
    return ARCHITECTURES[kind]


def _converted(source: Source, vocabulary: Vocabulary, architecture: Architecture) -> Converted:
    """The model, by the names of this package."""
    family, folder = source.family, source.folder
    ours = to_ours(source.parameters, architecture.rules(family, NEW_HEAD))
    # A tied output layer is not saved.
    ours.setdefault(family.output, ours[family.embeddings])
    settings = settings_of(source.config, ours, folder, family)
    scale = source.config.get("embedding_scale")
    converted = imported(ours, settings, vocabulary.entries, folder, KIND, family, scale)
    if any(name.startswith("classification_heads.") for name in ours):
        source.notes.append(f"the classifier is the head {NEW_HEAD}")
    converted.notes = [*vocabulary.notes, *source.notes, *converted.notes]
    converted.not_comparable = converted.not_comparable or source.not_comparable
    converted.order, converted.files = vocabulary.order, vocabulary.files
    return converted


def _prefixed(theirs: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The parameters of a model without a head, whose names lack the prefix."""
    bare = ("embeddings.", "encoder.", "pooler.", "embed_tokens.")
    return {f"{prefix}.{n}" if n.startswith(bare) else n: v for n, v in theirs.items()}


def outputs(directory: Path, converted: Converted, head: str | None) -> Forward:
    """The model as transformers loads it from the directory, called with fairseq's ids.

    Raises:
        UsageError: `transformers` is not installed.
    """
    library = import_extra("transformers", "hf")
    # The Auto classes then know our models.
    from ... import huggingface  # noqa: F401

    language_model = "CausalLM" if converted.family is CAUSAL else "MaskedLM"
    auto = getattr(library, f"AutoModelFor{'SequenceClassification' if head else language_model}")
    model = auto.from_pretrained(str(directory)).eval()
    order = torch.tensor(converted.order or range(model.config.vocab_size))

    def forward(tokens: Tensor) -> tuple[Tensor, ...]:
        mask = tokens.ne(1).long()
        out = model(order[tokens], attention_mask=mask, output_hidden_states=True)
        return (out.logits,) if head else (out.hidden_states[-1], out.logits[..., order])

    return forward


SUMMARY = "transformers: RoBERTa for `learned`, a model with its own code for other encodings"
HEAD = Option("head", str, None, "the classification head to write")
LOWER = Option("lower_case", bool, False, "yes: the tokenizer lower-cases texts, as in training")
CHOICE = Option(
    "classes", str, None, "roberta (default for `learned`) or tupe, which has its own code"
)
register(Conversion("--from", KIND, SUMMARY, read, outputs, OPTIONS, extra="hf"))
register(Conversion("--to", KIND, SUMMARY, write, outputs, (HEAD, CHOICE, LOWER), extra="hf"))
