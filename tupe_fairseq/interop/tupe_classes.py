"""Directories of `tupe_fairseq.huggingface`, which transformers loads without this package.

config.json, model.safetensors, dict.txt, and the code of the model (`sources.py`).
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import CheckpointError
from ..extras import import_extra
from ..modules.activations import ACTIVATIONS
from ..position import POSITION_ENCODINGS
from .conversion import Forward
from .dictionaries import dictionary_text
from .directory import Converted, build, building, check_head, head_names
from .families import CAUSAL, MASKED, Family
from .keys import HEAD, Rule, Table, to_ours, to_theirs
from .model_files import check_fit, read_config, write_config, write_tensors
from .settings import functions, sizes
from .shards import read_directory
from .sources import AUTO_MAP, collect
from .tokenizer_json import add_tokenizer

MODEL_TYPE = "tupe"
#: The token embeddings.
WORDS = "tupe.embed_tokens.weight"
#: Settings of the same name in both, and what they are where a configuration lacks them.
WINDOW = {"attention_window": None, "global_every": 0}
#: Deepest name of a parameter below the encoder, in parts.
DEEPEST = 8


def table(family: Family = MASKED, head: str | None = None) -> Table:
    """Rules for the names of parameters.

    Args:
        family: the kind of model.
        head: the classification head that is `classifier` there.
    """
    stars = [".*" * count for count in range(1, DEEPEST)]
    stack = (
        Rule(WORDS, family.words),
        *(
            Rule(f"tupe.encoder.{name}{more}", f"{family.stack}{name}{more}")
            for name in ("embed_positions", "layernorm_embedding", "layers", "layer_norm")
            for more in stars
        ),
    )
    if family is CAUSAL:
        return (*stack, Rule("lm_head.weight", family.output))
    return (
        *stack,
        Rule("lm_head.dense.*", "encoder.lm_head.dense.*"),
        Rule("lm_head.layer_norm.*", "encoder.lm_head.layer_norm.*"),
        Rule("lm_head.decoder.weight", family.output),
        Rule("lm_head.decoder.bias", "encoder.lm_head.bias"),
        *((Rule("classifier.*.*", f"classification_heads.{head}.*.*"),) if head else ()),
    )


def write(
    converted: Converted, out: Path, head: str | None = None, lower_case: bool = False
) -> None:
    """Write a directory that transformers' Auto classes load with trust_remote_code.

    A language model is for AutoModelForCausalLM, any other for AutoModelForMaskedLM.

    Args:
        converted: the model.
        out: the directory; must not exist.
        head: write this classification head, for AutoModelForSequenceClassification, instead of
            the head for masked words.
        lower_case: the tokenizer lower-cases texts, as the training data were.

    Raises:
        UsageError: the classes for transformers have no counterpart of the model.
    """
    config, theirs = parts(converted, head)
    settings = converted.settings
    files = collect(settings["position_encoding"], _model_settings(settings, converted.family))
    with building(out) as folder:
        write_config(folder / "config.json", {"auto_map": AUTO_MAP, **config})
        write_tensors(folder / "model.safetensors", theirs)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        write_words(folder, converted, lower_case)


def parts(converted: Converted, head: str | None) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Configuration and parameters for the classes; arguments and errors are those of `write`."""
    state, settings, family = converted.state, converted.settings, converted.family
    check_head(state, head)
    if settings["activation_fn"] not in ACTIVATIONS:
        raise CheckpointError(
            f"the classes for transformers support activation_fn {', '.join(ACTIVATIONS)} only, "
            f"but the model's is {settings['activation_fn']!r}."
        )
    kept = _model_settings(settings, family)
    own = build(kept, converted.entries, state, family)
    check_fit(state, own.state_dict(), "the model", family.model)
    left = [family.output] if family.is_tied(settings) else []
    theirs = to_theirs({n: v for n, v in state.items() if n not in left}, table(family, head))
    if head:
        theirs = {n: value for n, value in theirs.items() if not n.startswith("lm_head.")}
    left_out = [name for name in head_names(state) if name != head]
    if left_out:
        converted.notes.append(f"left out, classification heads: {', '.join(left_out)}")
    scale = own.get_submodule(family.stack[:-1]).embed_scale
    return _config(converted, scale, head), theirs


def write_words(folder: Path, converted: Converted, lower_case: bool) -> None:
    """Write the dictionary, and the tokenizer where there is one beside the model."""
    settings, family = converted.settings, converted.family
    (folder / "dict.txt").write_text(dictionary_text(converted.entries), encoding="utf-8")
    first = None if family is MASKED else _first_token(settings)
    add_tokenizer(converted, folder, settings[family.longest], lower_case, first)


def _first_token(settings: Mapping[str, Any]) -> str:
    """What stands before the first token of a text where a language model is trained."""
    return "<s>" if settings.get("add_bos_token") else "</s>"


def _model_settings(settings: Mapping[str, Any], family: Family) -> dict[str, Any]:
    """The settings that the classes for transformers have."""
    options = (option.name for option in _options(settings))
    names = (*family.settings.values(), *WINDOW, *options, family.ties[0], *family.own)
    given = {**family.defaults, **settings}
    return {name: given[name] for name in names if given.get(name) is not None}


def _options(settings: Mapping[str, Any]) -> tuple[Any, ...]:
    return POSITION_ENCODINGS[settings["position_encoding"]].options()


def _config(converted: Converted, scale: float, head: str | None) -> dict[str, Any]:
    settings, state, family = converted.settings, converted.state, converted.family
    known = _model_settings(settings, family)
    given = known.keys() & {option.name for option in _options(settings)}
    task: dict[str, Any] = {"architectures": ["TupeForMaskedLM"]}
    if family is CAUSAL:
        task = {"architectures": ["TupeForCausalLM"], "is_decoder": True}
    elif head:
        labels = len(state[f"classification_heads.{head}.out_proj.weight"])
        kind = "regression" if labels == 1 else "single_label_classification"
        task = {
            "architectures": ["TupeForSequenceClassification"],
            "id2label": {str(i): f"LABEL_{i}" for i in range(labels)},
            "label2id": {f"LABEL_{i}": i for i in range(labels)},
            "problem_type": kind,
        }
    return {
        "model_type": MODEL_TYPE,
        **task,
        "vocab_size": len(state[family.words]),
        **{there: settings[here] for there, here in family.settings.items()},
        **{name: known.get(name, default) for name, default in WINDOW.items()},
        "position_options": {name: known[name] for name in sorted(given)},
        "embedding_scale": scale,
        "tie_word_embeddings": family.is_tied(settings),
        "bos_token_id": 2 if family is CAUSAL and _first_token(settings) == "</s>" else 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
    }


def read(source: str | Path, dictionary: str | Path | None = None) -> Converted:
    """Read a directory of a masked language model, a sentence classifier or a language model.

    Args:
        source: the directory.
        dictionary: dict.txt in the order of its ids; default: the one in the directory.

    Raises:
        UsageError: it is not such a directory, or its contents do not fit.
    """
    folder = Path(source)
    config = read_config(folder / "config.json")
    family = CAUSAL if config.get("is_decoder") else MASKED
    theirs, words, entries = read_directory(folder, dictionary, WORDS, family.adds_mask)
    rules, notes = table(family, HEAD), []
    ours = to_ours(theirs, rules)
    classifier = "classifier.out_proj.weight" in theirs
    if classifier:
        notes.append(f"the classifier is the head {HEAD}")
    settings = _settings(config, ours, folder, family)
    new_head = family is MASKED and "lm_head.dense.weight" not in theirs
    if not new_head:
        ours.setdefault(family.output, words)
    settings |= family.tying(torch.equal(ours.get(family.output, words), words))
    try:
        model = build(settings, entries, ours, family)
    except RuntimeError as error:
        raise CheckpointError(
            f"{folder / 'config.json'} does not fit its parameters: max_position_embeddings "
            f"{settings[family.longest]} or an option needs too much memory."
        ) from error
    _check_scale(config, model.get_submodule(family.stack[:-1]).embed_scale, folder)
    own = model.state_dict()
    if new_head:
        notes.append("the source has no head for masked words: the new one is untrained")
        ours |= {n: v for n, v in own.items() if n.startswith("encoder.lm_head.")}
        ours[family.output] = words
    unknown = {n: v for n, v in theirs.items() if not to_ours({n: v}, rules)}
    version = {family.version: own[family.version]}
    check_fit(ours | unknown | version, own, source, "huggingface")
    head = HEAD if classifier and new_head else None
    return Converted(settings, ours | version, entries, notes, head=head, family=family)


def _check_scale(config: Mapping[str, Any], scale: float, folder: Path) -> None:
    """Check the factor of the embeddings: fairseq's model has no other."""
    found = config.get("embedding_scale", scale)
    if not isinstance(found, int | float) or not math.isclose(found, scale, rel_tol=1e-6):
        raise CheckpointError(
            f"invalid embedding_scale in {folder / 'config.json'}: {found!r}; fairseq's model "
            f"multiplies embeddings by {scale}."
        )


def _settings(
    config: Mapping[str, Any], ours: Mapping[str, Tensor], source: Path, family: Family
) -> dict[str, Any]:
    """Arguments of the model, from the parameters where these show them."""
    names, path = family.settings, source / "config.json"
    if lacking := [name for name in names if name not in config]:
        raise CheckpointError(f"{path} lacks {', '.join(lacking)}.")
    recorded = {here: config[there] for there, here in names.items()}
    recorded |= {name: config.get(name, default) for name, default in WINDOW.items()}
    if wrong := [name for name in WINDOW if type(recorded[name]) not in (int, type(WINDOW[name]))]:
        raise CheckpointError(f"invalid {wrong[0]} in {path}: {recorded[wrong[0]]!r}.")
    if family is CAUSAL:
        recorded["no_scale_embedding"] = config.get("embedding_scale") == 1
        recorded["add_bos_token"] = config.get("bos_token_id") == 0
    elif recorded["pooler_dropout"] is None:
        # The other dropout is used there.
        recorded["pooler_dropout"] = recorded["dropout"]
    options = config.get("position_options") or {}
    known = {option.name for option in _options(recorded)}
    if not isinstance(options, dict) or options.keys() - known:
        raise CheckpointError(f"invalid position_options in {path}: {json.dumps(options)}.")
    found = sizes(recorded, ours, family.stack, source, family.side)
    return recorded | options | found | functions(recorded, source)


def outputs(directory: Path, converted: Converted, head: str | None) -> Forward:
    """The model as transformers loads it from the directory.

    Raises:
        UsageError: `transformers` is not installed.
    """
    import_extra("transformers", "hf")
    from .. import huggingface

    kinds = {MASKED: huggingface.TupeForMaskedLM, CAUSAL: huggingface.TupeForCausalLM}
    kind = huggingface.TupeForSequenceClassification if head else kinds[converted.family]
    model = kind.from_pretrained(str(directory)).eval()

    def forward(tokens: Tensor) -> tuple[Tensor, ...]:
        out = model(tokens, output_hidden_states=True)
        return (out.logits,) if head else (out.hidden_states[-1], out.logits)

    return forward
