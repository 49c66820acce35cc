"""The kinds of models that are converted: masked language models and language models."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ..arguments.declaration import ModelArguments
from ..arguments.roberta import ROBERTA
from ..arguments.transformers import LANGUAGE_MODEL
from ..errors import CheckpointError
from ..modules.layer_options import LayerOptions
from ..options import declared_options
from ..position import model_options


@dataclass(frozen=True, eq=False)
class Family:
    """What differs between the two kinds.

    Attributes:
        arguments: of its model in fairseq.
        task: of fairseq's training.
        criterion: as `task`.
        stack: prefix of the parameters of embeddings, positions and layers.
        output: the weight of the output layer.
        ties: the setting that ties the output layer to the embeddings, and its value if it does.
        more: further settings by their names in `TupeConfig`.
    """

    arguments: ModelArguments
    task: str
    criterion: str
    stack: str
    output: str
    ties: tuple[str, bool]
    more: Mapping[str, str] = field(default_factory=dict)

    @property
    def causal(self) -> bool:
        """Whether these are language models."""
        return self.arguments.decoder

    @property
    def longest(self) -> str:
        """The setting with the longest sequence in tokens."""
        return self.arguments.lengths[0]

    @property
    def embeddings(self) -> str:
        """The token embeddings."""
        return f"{self.stack}embed_tokens.weight"

    @property
    def version(self) -> str:
        """Marks state dicts in which the names of the LayerNorms are today's."""
        return f"{self.stack}version"

    @property
    def settings(self) -> dict[str, str]:
        """Settings of the same meaning: name in `TupeConfig`, name here."""
        shared = (*model_options(self.causal), *declared_options(LayerOptions))
        side = self.stack.partition(".")[0]
        same = ("position_encoding", *(option.name for option in shared))
        return {
            "num_hidden_layers": f"{side}_layers",
            "hidden_size": f"{side}_embed_dim",
            "intermediate_size": f"{side}_ffn_embed_dim",
            "num_attention_heads": f"{side}_attention_heads",
            "max_position_embeddings": self.longest,
            "layernorm_embedding": "layernorm_embedding",
            "normalize_before": f"{side}_normalize_before",
            "hidden_dropout_prob": "dropout",
            "attention_probs_dropout_prob": "attention_dropout",
            "activation_dropout": "activation_dropout",
            "hidden_act": "activation_fn",
            **dict(zip(same, same, strict=True)),
            **self.more,
        }

    def complete(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings with those that follow from them."""
        if not self.causal:
            return {"tokens_per_sample": settings[self.longest], **settings}
        width = settings["decoder_embed_dim"]
        # A language model may read <s> before each sample.
        length = settings[self.longest] - bool(settings.get("add_bos_token"))
        sizes = {"tokens_per_sample": length, "decoder_input_dim": width}
        return {**sizes, "decoder_output_dim": width, **settings}

    def start(self, settings: Mapping[str, Any]) -> str | None:
        """What a language model reads before a text; None for a masked language model."""
        if not self.causal:
            return None
        return "<s>" if settings.get("add_bos_token") else "</s>"


MASKED = Family(
    arguments=ROBERTA,
    task="masked_lm",
    criterion="masked_lm",
    stack="encoder.sentence_encoder.",
    output="encoder.lm_head.weight",
    ties=("untie_weights_roberta", False),
    more={
        "classifier_dropout": "pooler_dropout",
        "classifier_act": "pooler_activation_fn",
        "layer_norm_eps": "layer_norm_eps",
        "type_vocab_size": "type_vocab_size",
        "quant_noise_pq": "quant_noise_pq",
    },
)
CAUSAL = Family(
    arguments=LANGUAGE_MODEL,
    task="language_modeling",
    criterion="cross_entropy",
    stack="decoder.",
    output="decoder.output_projection.weight",
    ties=("share_decoder_input_output_embed", True),
)


def family_of(state: Mapping[str, Tensor], source: object) -> Family:
    """The family of a checkpoint, by its parameters.

    Raises:
        CheckpointError: it is a translation model.
    """
    sides = {name.partition(".")[0] for name in state} & {"encoder", "decoder"}
    if len(sides) == 2:
        raise CheckpointError(f"{source} is a translation model, which cannot be converted.")
    return CAUSAL if sides == {"decoder"} else MASKED
