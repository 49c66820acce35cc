"""Directories that `from_pretrained` of this package's models loads: model.pt and dict.txt."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import MODEL_REGISTRY
from omegaconf import OmegaConf
from torch import Tensor

from ..base.errors import CheckpointError
from ..fairseq.arguments.roberta import ROBERTA
from ..fairseq.checkpoints.reading import recorded_settings
from ..fairseq.checks import read_dictionary
from ..fairseq.hub.files import (
    PREPROCESSING,
    SENTENCEPIECE,
    TOKENIZER,
    find_checkpoint,
    lowercases,
    preprocessing_record,
    separates,
)
from ..fairseq.hub.tokenizer_json import load_tokenizer, separates_once
from .carried import DICTIONARY, LABELS, fairseq_files, sentence_files
from .conversion import Conversion, Forward, Opened
from .dictionaries import (
    check_size,
    dictionary_for,
    dictionary_text,
    inverse,
    order_beside,
    reordered,
    tokenizer_beside,
)
from .fairseq_models import (
    TASK,
    all_arguments,
    check_kind,
    completed,
    from_fairseq,
    read_state,
    to_fairseq,
)
from .fairseq_tokenizer import FairseqTokenizer
from .flags import training_flags
from .kept import HEADLESS, KEPT, OF_HEADS, kept_settings, kept_text, read_kept
from .labels import NAMES, label_files, labels_beside
from .models import HEADS, LM_HEAD, POOLER, SENTENCES, Converted, head_names, sizes, task_of
from .output import building, write_files
from .sentence_modules import read_sentence_model, text_notes
from .settings import from_config, to_config, training_of
from .tokenizer_files import parts_of


def load(directory: str | Path, dictionary: Path | None = None) -> Converted:
    """Read a directory (or a checkpoint with dict.txt beside it) of a model of this package.

    Raises:
        CheckpointError: the directory does not hold such a model.
    """
    source = find_checkpoint(Path(directory))
    folder = source.parent
    fine_tuned = source.parent / "input0" / DICTIONARY
    beside = dictionary or (fine_tuned if fine_tuned.is_file() else folder / DICTIONARY)
    state = read_state(source)
    arguments = recorded_settings(state, "model", source)
    if "position_encoding" not in arguments:
        raise CheckpointError(
            f"{source} is not a checkpoint of this package: it records no position encoding."
        )
    check_kind(state["model"], source)
    words = read_dictionary(beside)
    separator = separates(recorded_settings(state, "task", source), folder)
    converted = neutral(arguments, state["model"], words, beside, source, separator)
    kept = {name: value for name, value in read_kept(folder).items() if name != NAMES}
    if kept.pop(HEADLESS, False):
        converted.state = {
            name: v for name, v in converted.state.items() if not name.startswith(LM_HEAD)
        }
    if head_names(converted.state):
        # fairseq's heads read the first token, and have no norm.
        kept = {name: value for name, value in kept.items() if name not in OF_HEADS}
    converted.settings |= kept
    converted.files |= sentence_files(folder)
    converted.training = training_of(state, source)
    order = order_beside(folder, words, converted.settings["vocab_size"])
    if order:
        _take_tokenizer(converted, order, separator)
    return converted


def neutral(
    arguments: Mapping[str, Any],
    state: Mapping[str, Tensor],
    dictionary: Dictionary,
    path: Path,
    source: Path,
    separator: bool | None = None,
) -> Converted:
    """The form between formats of a model of fairseq, whose dictionary is beside `path`.

    `separator` is whether a second </s> separates two sentences; None: if there are no types.

    Raises:
        UsageError: a setting or parameter is missing, or the dictionary is another one.
    """
    parameters = from_fairseq(state)
    shown = sizes(parameters, source, ROBERTA.name)
    settings = to_config(arguments, shown)
    check_size(dictionary, shown["vocab_size"], path)
    folder = source.parent
    converted = Converted(settings, parameters, folder, labels=labels_beside(path, folder))
    converted.files = fairseq_files(path) | fairseq_files(folder / path.name)
    converted.files[DICTIONARY] = dictionary_text(dictionary)
    models = [*folder.glob("*.model")]
    if SENTENCEPIECE not in converted.files and len(models) == 1:
        # The hub reads one of any name, if it is the only one.
        converted.files[SENTENCEPIECE] = models[0].read_bytes()
    own = FairseqTokenizer(folder, dictionary, converted.has_types, separator)
    if own.unusual is not None:
        record = preprocessing_record(lowercase=lowercases(folder), separator=own.unusual)
        converted.files[PREPROCESSING] = record
    converted.own_tokenizer = own
    return converted


def _take_tokenizer(converted: Converted, order: list[int], separator: bool | None) -> None:
    """Give the tokens the ids of the tokenizer.json beside the checkpoint.

    If the training joined two sentences in another way than that tokenizer, the one that is
    written joins them as the training did.
    """
    settings = converted.settings
    converted.state = reordered(converted, inverse(order))
    settings |= zip(("bos_token_id", "pad_token_id", "eos_token_id"), order, strict=False)
    converted.tokenizer = tokenizer_beside(converted)
    if separator == separates_once(load_tokenizer(converted.source / TOKENIZER)):
        from .fast_tokenizers import paired

        converted.tokenizer = paired(converted.tokenizer, converted.has_types, bool(separator))
    converted.own_tokenizer = None
    del converted.files[DICTIONARY]


def write(converted: Converted, out: Path) -> None:
    """Write a directory atomically; `out` must not exist.

    Raises:
        UsageError: `out` exists or cannot be written, tokens have no names, or fairseq has no
            such model.
    """
    _leave_out_heads(converted)
    dictionary, order = dictionary_for(converted)
    settings = from_config(converted.settings)
    state = to_fairseq(reordered(converted, order))
    state = completed(converted, state, settings, dictionary)
    files = _files(converted, dictionary, bool(order))
    if flags := training_flags(settings):
        converted.notes.append(f"flags of fairseq-train: {flags}")
    arguments = convert_namespace_to_omegaconf(all_arguments(settings))
    config = OmegaConf.to_container(arguments, enum_to_str=True)
    history = {
        "criterion_name": CRITERION_REGISTRY[TASK].__name__,
        "optimizer_name": "FairseqAdam",
        "lr_scheduler_state": {"best": None},
        "num_updates": 0,
    }
    checkpoint = {
        "args": None,
        "cfg": config,
        # Copies: torch saves the whole storage of a view.
        "model": {name: value.clone() for name, value in state.items()},
        "optimizer_history": [history],
        "extra_state": {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}},
    }
    with building(out) as folder:
        with open(folder / "model.pt", "wb") as file:
            torch.save(checkpoint, file)
        write_files(folder, files)


def _leave_out_heads(converted: Converted) -> None:
    """Leave out classification heads with a norm or of a mean, which fairseq does not have."""
    state = converted.state
    pooling = converted.settings.get("classifier_pooling")
    for head in head_names(state):
        part = "norm" if f"{HEADS}{head}.norm.weight" in state else ""
        if not part and pooling == "mean" and task_of(state, head) == SENTENCES:
            part = "mean of all tokens"
        if part:
            note = f"left out: the head {head}, whose {part} fairseq does not have"
            converted.notes.append(note)
            state = {n: v for n, v in state.items() if not n.startswith(f"{HEADS}{head}.")}
            converted.state = state
            converted.labels = []


def _files(converted: Converted, dictionary: Dictionary, by_tokenizer: bool) -> dict[str, bytes]:
    """What a directory has beside the checkpoint, and notes about it."""
    files = converted.files | {DICTIONARY: dictionary_text(dictionary)}
    settings = converted.settings
    kept = kept_settings(settings)
    if not converted.has_lm_head:
        converted.notes.append(
            "the source has no head for masked tokens: the new one is untrained"
        )
        kept[HEADLESS] = True
    if any(name.startswith(POOLER) for name in converted.state):
        converted.notes.append("the pooler is the first layer of the head pooler")
    if converted.labels:
        files[LABELS], names = label_files(converted.labels)
        kept |= {NAMES: names} if names else {}
    if kept:
        files[KEPT] = kept_text(kept)
    if by_tokenizer:
        converted.notes.append(
            "dict.txt holds the ids of tokenizer.json: binarise these (examples/huggingface)"
        )
        files |= converted.tokenizer
    if sentences := read_sentence_model(files):
        longest = settings["max_position_embeddings"]
        converted.notes += text_notes(sentences, "the hub", longest)
    return files


def outputs_of(
    model: Any, head: str | None, features: bool = False, order: Sequence[int] = ()
) -> Forward:
    """The logits of a model of fairseq or of its classification head, or its features.

    `order` is the id in `Converted` of each id of fairseq; empty: the same.
    """
    how = {"classification_head_name": head} if head else {"features_only": features}
    ids = torch.tensor(inverse(order))

    def forward(tokens: Tensor) -> Tensor:
        outputs = model(ids[tokens] if order else tokens, **how)[0]
        return outputs[..., ids] if order and not head and not features else outputs

    return forward


def open_directory(path: Path, converted: Converted, head: str | None) -> Opened:
    """The model as the hub loads it."""
    hub: Any = MODEL_REGISTRY[ROBERTA.name].from_pretrained(path)
    folder = path if path.is_dir() else path.parent
    order = order_beside(folder, hub.task.source_dictionary, converted.settings["vocab_size"])
    parts = parts_of(hub.bpe.tokenizer) if order else {}
    # The hub joins texts itself.
    parts.pop("post_processor", None)

    def encode(texts: tuple[str, ...]) -> list[int]:
        ids = hub.encode(*texts).tolist()
        return [order[number] for number in ids] if order else ids

    return Opened(
        outputs_of(hub.model, head, converted.writes_features(head), order),
        encode if hub.bpe is not None else None,
        labels_beside(folder / DICTIONARY, folder),
        parts,
        hub.model,
    )


READ = Conversion("--from", "", "a directory of this package", load, open_directory)
WRITE = Conversion("--to", "", "a directory of this package", write, open_directory)
