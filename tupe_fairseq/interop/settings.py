"""What checkpoints of fairseq record: settings, as those of `TupeConfig`, and the training."""

import math
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from ..arguments.declaration import RobertaArguments
from ..checkpoints.reading import recorded_settings
from ..errors import CheckpointError
from ..modules.layer_options import LayerOptions
from ..options import declared_options
from ..position import POSITION_ENCODINGS, ModelOptions
from .families import Family
from .models import encoding_options

#: Settings that older checkpoints do not record.
UNRECORDED: dict[str, Any] = {"quant_noise_pq": 0.0} | {
    option.name: option.default
    for declared in (ModelOptions, LayerOptions, RobertaArguments)
    for option in declared_options(declared)
}
#: Criteria of fairseq whose loss is in bits per token.
IN_BITS = ("masked_lm", "cross_entropy")
#: What fairseq's language models do, which have no setting for it.
LANGUAGE_MODELS = {"layer_norm_eps": 1e-5, "type_vocab_size": 0}


def to_config(
    arguments: Mapping[str, Any], shown: Mapping[str, Any], family: Family
) -> dict[str, Any]:
    """Settings of `TupeConfig` from fairseq's arguments, and from `shown`, by the parameters.

    Raises:
        CheckpointError: a setting is not recorded, or a size is not that of the parameters.
    """
    for there, here in family.settings.items():
        if there in shown and arguments.get(here, shown[there]) != shown[there]:
            raise CheckpointError(
                f"the checkpoint records {here} {arguments[here]!r}, but its parameters show "
                f"{shown[there]}."
            )
    recorded = {**UNRECORDED, **family.arguments.option_defaults, **arguments}
    names = {there: here for there, here in family.settings.items() if there not in shown}
    if lacking := [name for name in names.values() if name not in recorded]:
        raise CheckpointError(f"the checkpoint does not record its {', '.join(lacking)}.")
    options = sorted(encoding_options(recorded))
    config = {
        **{there: recorded[here] for there, here in names.items()},
        **shown,
        "position_options": {
            name: recorded[name] for name in options if recorded.get(name) is not None
        },
        "is_decoder": family.causal,
        "bos_token_id": 2 if family.start(recorded) == "</s>" else 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
    }
    if family.causal:
        unscaled = recorded.get("no_scale_embedding")
        config["embedding_scale"] = 1.0 if unscaled else math.sqrt(shown["hidden_size"])
    return config


def from_config(config: Mapping[str, Any], family: Family) -> dict[str, Any]:
    """Arguments of fairseq's model from settings of `TupeConfig`.

    Raises:
        CheckpointError: a setting has no counterpart.
    """
    arguments = {here: config.get(there) for there, here in family.settings.items()}
    name, tied = family.ties
    arguments[name] = tied == bool(config["tie_word_embeddings"])
    encoding = POSITION_ENCODINGS[config["position_encoding"]]
    if family.causal:
        for name, value in LANGUAGE_MODELS.items():
            if config.get(name, value) != value:
                raise CheckpointError(
                    f"unsupported {name}: {config[name]!r}; it must be {value!r} in a language "
                    "model of fairseq."
                )
        scale = encoding.token_scale(config["hidden_size"], config["embedding_scale"])
        arguments["no_scale_embedding"] = scale == 1
        arguments["add_bos_token"] = config["bos_token_id"] == 0
    elif arguments["pooler_dropout"] is None:
        # The other dropout is used there.
        arguments["pooler_dropout"] = arguments["dropout"]
    # A model of transformers has the defaults of its encoding, a language model here others.
    options = {**encoding.defaults(), **config["position_options"]}
    return {**arguments, **options, **encoding.recorded(options, arguments[family.longest])}


def training_of(state: Mapping[str, Any], source: object) -> dict[str, Any]:
    """What a checkpoint records of its training: `data`, `updates` and `validation`, where known.

    Raises:
        CheckpointError: the settings of `source` are not a table.
    """
    training: dict[str, Any] = {}
    data = recorded_settings(state, "task", source).get("data")
    path = PurePath(data.partition(":")[0] if isinstance(data, str) else "")
    # Without the folders of the machine that has trained.
    if folders := path.relative_to(path.anchor).parts[-2:]:
        training["data"] = "/".join(folders)
    history = state.get("optimizer_history")
    last = history[-1] if isinstance(history, list) and history else {}
    updates = last.get("num_updates") if isinstance(last, Mapping) else None
    if type(updates) is int and updates > 0:
        training["updates"] = updates
    extra = state.get("extra_state")
    loss = extra.get("val_loss") if isinstance(extra, Mapping) else None
    if type(loss) in (int, float):
        metric = recorded_settings(state, "checkpoint", source).get("best_checkpoint_metric")
        criterion = recorded_settings(state, "criterion", source)
        name = criterion.get("_name", criterion.get("criterion"))
        bits = metric in (None, "loss") and name in IN_BITS
        training["validation"] = f"{loss:.3f} {'bits' if bits else metric or 'loss'}"
    return training
