"""What checkpoints of fairseq record: settings, as those of `TupeConfig`, and the training."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from ..base.errors import CheckpointError
from ..base.options import declared_options
from ..fairseq.arguments.declaration import RobertaArguments
from ..fairseq.arguments.roberta import ROBERTA
from ..fairseq.checkpoints.reading import recorded_settings
from ..position import POSITION_ENCODINGS, ModelOptions, model_options
from ..position.deleted import refuse_deleted
from ..transformer.layer_options import LayerOptions
from .fairseq_models import LONGEST, TASK
from .models import encoding_options

#: Settings that older checkpoints do not record.
UNRECORDED: dict[str, Any] = {"quant_noise_pq": 0.0} | {
    option.name: option.default
    for declared in (ModelOptions, LayerOptions, RobertaArguments)
    for option in declared_options(declared)
}
#: Settings of the same meaning: name in `TupeConfig`, name in fairseq.
SETTINGS = {
    "position_encoding": "position_encoding",
    "num_hidden_layers": "encoder_layers",
    "hidden_size": "encoder_embed_dim",
    "intermediate_size": "encoder_ffn_embed_dim",
    "num_attention_heads": "encoder_attention_heads",
    "max_position_embeddings": LONGEST,
    "layernorm_embedding": "layernorm_embedding",
    "normalize_before": "encoder_normalize_before",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "activation_dropout": "activation_dropout",
    "hidden_act": "activation_fn",
    "classifier_dropout": "pooler_dropout",
    "classifier_act": "pooler_activation_fn",
    "layer_norm_eps": "layer_norm_eps",
    "type_vocab_size": "type_vocab_size",
    "quant_noise_pq": "quant_noise_pq",
    **{option.name: option.name for option in model_options()},
    **{option.name: option.name for option in declared_options(LayerOptions)},
}


def to_config(arguments: Mapping[str, Any], shown: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of `TupeConfig` from fairseq's arguments, and from `shown`, by the parameters.

    Raises:
        CheckpointError: a setting is not recorded, or a size is not that of the parameters.
    """
    for there, here in SETTINGS.items():
        if there in shown and arguments.get(here, shown[there]) != shown[there]:
            raise CheckpointError(
                f"the checkpoint records {here} {arguments[here]!r}, but its parameters show "
                f"{shown[there]}."
            )
    recorded = {**UNRECORDED, **ROBERTA.option_defaults, **arguments}
    names = {there: here for there, here in SETTINGS.items() if there not in shown}
    if lacking := [name for name in names.values() if name not in recorded]:
        raise CheckpointError(f"the checkpoint does not record its {', '.join(lacking)}.")
    options = sorted(encoding_options(recorded))
    refuse_deleted(arguments, options)
    return {
        **{there: recorded[here] for there, here in names.items()},
        **shown,
        "position_options": {
            name: recorded[name] for name in options if recorded.get(name) is not None
        },
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
    }


def from_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of fairseq's model from settings of `TupeConfig`."""
    arguments = {here: config.get(there) for there, here in SETTINGS.items()}
    arguments["untie_weights_roberta"] = not config["tie_word_embeddings"]
    encoding = POSITION_ENCODINGS[config["position_encoding"]]
    if arguments["pooler_dropout"] is None:
        # The other dropout is used there.
        arguments["pooler_dropout"] = arguments["dropout"]
    options = {**encoding.defaults(), **config["position_options"]}
    return {**arguments, **options, **encoding.recorded(options, arguments[LONGEST])}


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
        bits = metric in (None, "loss") and name == TASK
        training["validation"] = f"{loss:.3f} {'bits' if bits else metric or 'loss'}"
    return training
