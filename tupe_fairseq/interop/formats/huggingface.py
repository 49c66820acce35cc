"""Directories of Hugging Face's `transformers`: config.json and model.safetensors.

A model with the encoding `learned` is RoBERTa of transformers (`roberta_classes.py`); every other
is written with its own code (`tupe_classes.py`, `sources.py`), and `learned` too with --classes
tupe. BERT is read as RoBERTa (`bert_classes.py`), and RoBERTa as a model of our classes.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import CheckpointError, ConfigurationError
from ...extras import import_extra
from ...position import POSITION_ENCODINGS, Option
from .. import bert_classes, roberta_classes, tupe_classes
from ..conversion import Conversion, Forward, register
from ..dictionaries import check_size, dictionary_text, read_dictionary
from ..directory import building
from ..families import CAUSAL, MASKED
from ..keys import HEAD as NEW_HEAD
from ..model_files import FILE, read_config, read_parameters, write_config, write_tensors
from ..models import Converted, known_settings
from ..settings import matrix
from ..sources import AUTO_MAP, collect
from ..tokenizer_json import write_tokenizer
from ..vocabularies import Vocabulary, of_bert, of_roberta
from ..warm_start import OPTIONS, warm_start

KIND = "huggingface"
#: Values of --classes.
CLASSES = ("roberta", "tupe")
#: Tables that each kind of model has, by model_type.
TABLES = {
    tupe_classes.MODEL_TYPE: (tupe_classes.EMBED_TOKENS,),
    "roberta": (roberta_classes.POSITIONS_THERE, roberta_classes.EMBED_TOKENS_THERE),
    "bert": (bert_classes.POSITIONS_THERE, bert_classes.EMBED_TOKENS_THERE),
}
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
    masked, settings = converted.family is MASKED, converted.settings
    if classes == "roberta" and not masked:
        raise ConfigurationError(
            f"--classes is 'roberta', but the model is a {converted.family.what}: use tupe."
        )
    encoding, files = settings["position_encoding"], {}
    if (classes or ("roberta" if masked and encoding == "learned" else "tupe")) == "roberta":
        config, tensors = roberta_classes.parts(converted, head)
    else:
        config, tensors = tupe_classes.parts(converted, head)
        config = {"auto_map": AUTO_MAP, **config}
        files = collect(encoding, known_settings(settings, converted.family))
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
    write_config(folder / "config.json", config)
    (folder / "dict.txt").write_text(dictionary_text(converted.entries), encoding="utf-8")
    if source is not None:
        longest, start = settings[family.longest], family.start(settings)
        note = write_tokenizer(folder, source, converted.entries, longest, lower_case, start)
        converted.notes += [note] if note else []


def read(
    source: str | Path,
    dictionary: str | Path | None = None,
    position_encoding: str = "learned",
    seed: int = 1,
) -> Converted:
    """Read a directory of RoBERTa, BERT or one of our classes.

    The default dictionary is dict.txt in the directory, or for RoBERTa and BERT the tokens of the
    tokenizer. Any other encoding than `learned` is a warm start, with parameters from `seed`.

    Raises:
        UsageError: it is not such a directory, or its contents do not fit.
    """
    folder, learned = Path(source), position_encoding == "learned"
    # An unknown name is an error before anything is read.
    POSITION_ENCODINGS[position_encoding]
    config = read_config(folder / "config.json")
    kind = _checked_kind(config, folder, dictionary, not learned or seed != 1)
    theirs = _prefixed(read_parameters(folder), kind)
    for name in TABLES[kind]:
        embed_tokens = matrix(theirs, name, folder, KIND)
    family = CAUSAL if config.get("is_decoder") else MASKED
    vocabulary = _vocabulary(folder, dictionary, kind, len(embed_tokens), family.adds_mask)
    rules, notes = tupe_classes.table(family, NEW_HEAD), list(vocabulary.notes)
    if kind == "bert":
        theirs = bert_classes.as_roberta(theirs, vocabulary.order, notes)
    if kind != tupe_classes.MODEL_TYPE:
        rules = roberta_classes.table(NEW_HEAD)
        config = roberta_classes.as_tupe(config, theirs, learned, notes)
    if "classifier.out_proj.weight" in theirs:
        notes.append(f"the classifier is the head {NEW_HEAD}")
    converted = tupe_classes.read(config, theirs, rules, vocabulary.entries, folder, family)
    if kind == "bert" and not converted.not_comparable:
        converted.not_comparable = bert_classes.difference(config)
    converted = warm_start(converted, position_encoding, seed)
    converted.notes, converted.files = [*notes, *converted.notes], vocabulary.files
    return converted


def _checked_kind(config: dict[str, Any], folder: Path, dictionary: Any, warm: bool) -> str:
    """The kind of model, after a check that its settings and the options apply to it."""
    path, kind = folder / "config.json", str(config.get("model_type"))
    if kind in OTHERS:
        raise CheckpointError(f"{path} cannot be read: {OTHERS[kind]}.")
    if kind not in TABLES:
        raise CheckpointError(
            f"{path} is not a configuration of RoBERTa, BERT or tupe: its model_type is {kind!r}."
        )
    if kind == tupe_classes.MODEL_TYPE and warm:
        raise ConfigurationError(
            f"{folder} has an encoding of its own; leave out --position-encoding and --seed."
        )
    # It does not say which rows belong to its tokens.
    if kind == "bert" and dictionary is not None:
        raise ConfigurationError("--dict does not apply to BERT: its tokenizer has the tokens.")
    if kind != tupe_classes.MODEL_TYPE:
        free = bert_classes.FREE if kind == "bert" else ()
        roberta_classes.check_config(config, path, free)
    return kind


def _vocabulary(
    folder: Path, dictionary: str | Path | None, kind: str, rows: int, adds_mask: bool
) -> Vocabulary:
    """The dictionary, from dict.txt or from the tokenizer."""
    path = Path(dictionary or folder / "dict.txt")
    if kind == "bert":
        return of_bert(folder, rows)
    if kind == "roberta" and dictionary is None and not path.is_file():
        return of_roberta(folder, rows)
    entries = read_dictionary(path)
    check_size(entries, rows, path, adds_mask)
    return Vocabulary(entries, list(range(rows)), {}, [])


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
    size = model.config.vocab_size
    bert = model.config.model_type == "bert"
    order = torch.tensor(of_bert(directory, size).order if bert else range(size))

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
