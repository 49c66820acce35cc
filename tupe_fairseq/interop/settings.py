"""Settings of a model there and here: `TupeConfig` of transformers, arguments of fairseq."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ..arguments.declaration import RobertaArguments
from ..errors import CheckpointError
from ..options import declared_options
from ..position import POSITION_ENCODINGS, model_options
from .dictionaries import LABELS
from .families import CAUSAL, Family
from .models import ANSWERS, HEADS, SENTENCES, Converted, options_of, sizes, task_of

#: Settings that older checkpoints do not record.
UNRECORDED = {
    option.name: option.default
    for option in (*model_options(), *declared_options(RobertaArguments))
}


def to_config(converted: Converted, head: str | None) -> dict[str, Any]:
    """Settings of `TupeConfig`, for the class with the classification `head` if there is one.

    Raises:
        CheckpointError: a setting is not recorded.
    """
    family, state = converted.family, converted.state
    given = {**UNRECORDED, **family.defaults, **converted.settings}
    if lacking := [name for name in family.settings.values() if name not in given]:
        raise CheckpointError(f"the checkpoint does not record its {', '.join(lacking)}.")
    config = {
        "vocab_size": len(state[family.embeddings]),
        **{there: given[here] for there, here in family.settings.items()},
        "position_options": {
            name: given[name] for name in sorted(options_of(given)) if given.get(name) is not None
        },
        "is_decoder": family is CAUSAL,
        "tie_word_embeddings": family.is_tied(given),
        "bos_token_id": 2 if family.start(given) == "</s>" else 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
    }
    if converted.order:
        special = ("bos_token_id", "pad_token_id", "eos_token_id")
        config |= zip(special, converted.order, strict=False)
    if head:
        count, names = len(state[f"{HEADS}{head}.out_proj.weight"]), converted.labels
        kind = "regression" if count == 1 else "single_label_classification"
        config["num_labels"] = count
        if count == len(names):
            config["id2label"] = dict(enumerate(names))
            config["label2id"] = {name: number for number, name in enumerate(names)}
        elif count > 1 and task_of(state, head) != ANSWERS:
            converted.notes.append(
                f"no names of the {count} classes, so they are LABEL_0, ...: copy the "
                f"{LABELS} of the data into the directory"
            )
        if task_of(state, head) == SENTENCES:
            config["problem_type"] = kind
    return config


def from_config(
    config: Any, state: Mapping[str, Tensor], source: object, family: Family
) -> dict[str, Any]:
    """Arguments of fairseq's model from a `TupeConfig`; what parameters show is taken from them.

    Raises:
        UsageError: a setting of `source` is invalid.
    """
    config.check_numbers()
    settings = {here: getattr(config, there) for there, here in family.settings.items()}
    if family is CAUSAL:
        settings["no_scale_embedding"] = config.embedding_scale == 1
        settings["add_bos_token"] = config.bos_token_id == 0
    elif settings["pooler_dropout"] is None:
        # The other dropout is used there.
        settings["pooler_dropout"] = settings["dropout"]
    if unknown := config.position_options.keys() - options_of(settings):
        raise CheckpointError(
            f"invalid position_options in {source}: {', '.join(map(str, unknown))}."
        )
    return {
        **settings,
        # A model of transformers has the defaults of its encoding, a language model here others.
        **POSITION_ENCODINGS[config.position_encoding].defaults(),
        **config.position_options,
        **sizes(state, source, config.model_type, family),
    }
