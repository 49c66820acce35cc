"""RoBERTa: the encoding `learned` under other names.

RoBERTa here and there count positions from padding_idx + 1 = 2 and have the same layers.
transformers also has a table of token types, which is zero in what is written here.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from ...errors import CheckpointError
from ..families import MASKED, Family
from ..keys import Rule, Table
from ..models import EMBED_TOKENS, ENCODER, LM_HEAD, POSITIONS, Converted, exported
from ..vocabularies import Vocabulary, of_roberta
from .base import Architecture, Source, Written

#: Settings of both configurations.
SHARED = (
    "num_hidden_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "classifier_dropout",
)
#: Settings of `TupeConfig` that RoBERTa does not have, and what its models do.
FIXED = {
    "position_encoding": "learned",
    "layernorm_embedding": True,
    "normalize_before": False,
    "attention_window": None,
}
#: Settings of BERT and RoBERTa with one value here: that value, and their default there.
REQUIRED: dict[str, tuple[Any, Any]] = {
    "hidden_act": ("gelu", "gelu"),
    "is_decoder": (False, False),
    "position_embedding_type": ("absolute", "absolute"),
}
#: Activations with the same name and function in both; gelu is exact.
ACTIVATIONS = ("gelu", "relu", "tanh", "linear")


class Roberta(Architecture):
    """RoBERTa."""

    model_type = "roberta"
    #: The weight of the output layer, which may be that of the embeddings.
    output = "lm_head.decoder.weight"
    #: Parameters that are left out: a constant, and a second name of a bias.
    unused: tuple[str, ...] = ("roberta.embeddings.position_ids", "lm_head.decoder.bias")
    required: ClassVar = {**REQUIRED, "layer_norm_eps": (1e-5, 1e-12), "pad_token_id": (1, 1)}

    def __init__(self) -> None:
        embeddings = f"{self.model_type}.embeddings."
        self.embed_tokens = f"{embeddings}word_embeddings.weight"
        self.positions = f"{embeddings}position_embeddings.weight"
        self.matrices = (self.positions, self.embed_tokens)
        # One row is written. A second type would need an input that fairseq does not have.
        self.token_types = f"{embeddings}token_type_embeddings.weight"

    def read(self, source: Source) -> Vocabulary:
        """Without a dict.txt, the dictionary is that of the tokenizer."""
        if source.dictionary is None and not (source.folder / "dict.txt").is_file():
            vocabulary = of_roberta(source.folder, len(source.parameters[self.embed_tokens]))
        else:
            vocabulary = super().read(source)
        self.read_stack(source)
        return vocabulary

    def read_stack(self, source: Source) -> None:
        """Settings and parameters, without the dictionary."""
        for name, (here, default) in self.required.items():
            if (found := source.config.get(name, default)) != here:
                path = source.folder / "config.json"
                raise CheckpointError(
                    f"unsupported {name} in {path}: {found!r}; it must be {here!r}."
                )
        self._fold_token_types(source)
        if not any(name.startswith("classifier.") for name in source.parameters):
            leave_out(source, f"{self.model_type}.pooler.")
        for name in self.unused:
            source.parameters.pop(name, None)
        source.config = {
            **{"hidden_act": "gelu", "classifier_dropout": None},
            **source.config,
            **FIXED,
            **{"activation_dropout": 0.0, "classifier_act": "tanh"},
            "max_position_embeddings": len(source.parameters[self.positions]) - 2,
        }

    def _fold_token_types(self, source: Source) -> None:
        """Add type 0, which every token has, to the positions, or to the tokens of a warm start.

        In the output layer that is tied to the embeddings, it adds the same number to all logits.
        """
        theirs = source.parameters
        types, tokens = theirs.pop(self.token_types, None), theirs[self.embed_tokens]
        if types is None or not types.any():
            return
        target = self.positions if source.learned else self.embed_tokens
        if types.dim() != 2 or types.size(1) != theirs[target].size(1):
            raise CheckpointError(f"{self.token_types} has another width than {target}.")
        if not source.learned and torch.equal(theirs.get(self.output, tokens), tokens):
            theirs.pop(self.output, None)
        theirs[target] = theirs[target] + types[:1]
        more = f"; left out: {len(types) - 1} other" if len(types) > 1 else ""
        where = "positions" if source.learned else "tokens"
        source.notes.append(f"token type 0 is added to the {where}{more}")

    def rules(self, family: Family, head: str | None) -> Table:
        return (
            *stack_rules(self.model_type),
            Rule("lm_head.dense.*", f"{LM_HEAD}dense.*"),
            Rule("lm_head.layer_norm.*", f"{LM_HEAD}layer_norm.*"),
            Rule(self.output, f"{LM_HEAD}weight"),
            Rule("lm_head.bias", f"{LM_HEAD}bias"),
            Rule("classifier.*.*", f"classification_heads.{head}.*.*"),
        )

    def write(self, converted: Converted, head: str | None) -> Written:
        settings, state = converted.settings, converted.state
        _check_counterpart(settings, head)
        theirs, _ = exported(converted, self.rules(MASKED, head), head)
        if self.output in theirs:
            theirs["lm_head.decoder.bias"] = theirs["lm_head.bias"]
        theirs[self.token_types] = torch.zeros(1, settings["encoder_embed_dim"])
        config = {
            "architectures": [
                "RobertaForSequenceClassification" if head else "RobertaForMaskedLM"
            ],
            "model_type": self.model_type,
            "vocab_size": len(state[EMBED_TOKENS]),
            "max_position_embeddings": len(state[POSITIONS]),
            **{name: settings[MASKED.settings[name]] for name in SHARED},
            "layer_norm_eps": 1e-5,
            "type_vocab_size": 1,
            "bos_token_id": 0,
            "pad_token_id": 1,
            "eos_token_id": 2,
            "tie_word_embeddings": MASKED.is_tied(settings),
        }
        if head:
            config["num_labels"] = len(theirs["classifier.out_proj.weight"])
        return config, theirs


def stack_rules(model: str) -> Table:
    """Names of embeddings and layers, which RoBERTa has from BERT."""
    layer, ours = f"{model}.encoder.layer.*.", f"{ENCODER}layers.*."
    return (
        Rule(f"{model}.embeddings.word_embeddings.weight", EMBED_TOKENS),
        Rule(f"{model}.embeddings.position_embeddings.weight", POSITIONS),
        Rule(f"{model}.embeddings.LayerNorm.*", f"{ENCODER}layernorm_embedding.*"),
        Rule(f"{layer}attention.self.query.*", f"{ours}self_attn.q_proj.*"),
        Rule(f"{layer}attention.self.key.*", f"{ours}self_attn.k_proj.*"),
        Rule(f"{layer}attention.self.value.*", f"{ours}self_attn.v_proj.*"),
        Rule(f"{layer}attention.output.dense.*", f"{ours}self_attn.out_proj.*"),
        Rule(f"{layer}attention.output.LayerNorm.*", f"{ours}self_attn_layer_norm.*"),
        Rule(f"{layer}intermediate.dense.*", f"{ours}fc1.*"),
        Rule(f"{layer}output.dense.*", f"{ours}fc2.*"),
        Rule(f"{layer}output.LayerNorm.*", f"{ours}final_layer_norm.*"),
    )


def leave_out(source: Source, prefix: str) -> None:
    """Remove the parameters of a part that has no counterpart, and say so if there are any."""
    names = [name for name in source.parameters if name.startswith(prefix)]
    for name in names:
        del source.parameters[name]
    source.notes += [f"left out: {prefix}*"] if names else []


def _check_counterpart(settings: Mapping[str, Any], head: str | None) -> None:
    """Check that all settings have a counterpart."""
    allowed: dict[str, tuple] = {
        MASKED.settings.get(name, name): (value,) for name, value in FIXED.items()
    }
    # The language modeling head of transformers always uses gelu.
    allowed["activation_fn"] = ACTIVATIONS if head else ("gelu",)
    if head:
        allowed["pooler_activation_fn"] = ("tanh",)
    for name, values in allowed.items():
        if settings.get(name) not in values:
            raise CheckpointError(
                f"transformers' RoBERTa supports {name} {' or '.join(map(repr, values))} only, "
                f"but the model's is {settings.get(name)!r}: use --classes tupe."
            )
