"""`TupeConfig`: the configuration of the models for transformers.

From a directory with its code, transformers 4 copies the files that it imports, but not those that
these import. So it also imports what `position.model_options` imports.
"""

import math
from typing import Any

from transformers import PretrainedConfig

from ..base.errors import ConfigurationError
from ..base.options import declared_options
from ..position.deleted import without_deleted
from ..position.model_options import model_options
from ..transformer.layer_options import LayerOptions

#: Settings that count something.
SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
)
DROPOUTS = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "activation_dropout",
    "quant_noise_pq",
    "classifier_dropout",
    "pooler_dropout",
)


class TupeConfig(PretrainedConfig):
    """Configuration of an encoder with a position encoding.

    Names and defaults are those of RoBERTa in transformers where the meaning is the same.

    Args:
        vocab_size: tokens in the vocabulary V.
        hidden_size: model width C.
        num_hidden_layers: layers L.
        num_attention_heads: heads H, a divisor of hidden_size.
        intermediate_size: feed-forward width.
        hidden_act: activation of feed-forward blocks without a gate (`gated_ffn` names that of
            those with one), and of the language modeling head.
        hidden_dropout_prob: dropout of the input and of the output of every block.
        attention_probs_dropout_prob: dropout of attention weights.
        activation_dropout: dropout after the activation of feed-forward blocks.
        max_position_embeddings: longest sequence, in tokens.
        position_encoding: name of a registered encoding.
        position_options: the options of that encoding by name; others have their defaults, also
            where `from_pretrained` gets this argument.
        layernorm_embedding: LayerNorm on the input, as BERT has.
        normalize_before: pre-LN layers and a final LayerNorm.
        embedding_scale: factor of the token embeddings; None: √C for encodings whose positions
            need it (`sinusoidal`, `cape`, `shape`), else 1.
        layer_norm_eps: epsilon of LayerNorms, added to the variance.
        type_vocab_size: number of token types; 0: `token_type_ids` has no effect.
        quant_noise_pq: noise of the training in fairseq; above 0, a linear layer follows the
            embeddings, as there. No noise is added here.
        attention_backend: backend under attn_implementation "sdpa": "auto" or a registered one.
        classifier_dropout: dropout of classification heads; None: hidden_dropout_prob.
        classifier_act: activation of the head for sequence classification.
        classifier_norm: classification heads have a LayerNorm before their last layer, also those
            of token classification and question answering, as in ModernBERT.
        classifier_pooling: the head for sequence classification reads the first token ("cls") or
            the mean of all tokens ("mean").
        pooler_dropout: dropout of the input of this head; None: classifier_dropout.
        initializer_range: standard deviation of new weights.
        tie_word_embeddings: the output layer uses the token embeddings as its weight.
        bos_token_id: id of `<s>`.
        pad_token_id: id of padding.
        eos_token_id: id of `</s>`.
        sparse_prediction: in training, a masked language model computes logits only for tokens
            that have a label, as ModernBERT in transformers.
        **kwargs: options of every encoding, such as attention_window (`ModelOptions`), those of
            layers (`LayerOptions`), and other settings of transformers.
    """

    model_type = "tupe"

    vocab_size: int = 50265
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    activation_dropout: float = 0.0
    max_position_embeddings: int = 512
    position_encoding: str = "tupe_r"
    position_options: Any = None
    layernorm_embedding: bool = True
    normalize_before: bool = False
    embedding_scale: float | None = None
    layer_norm_eps: float = 1e-5
    type_vocab_size: int = 0
    quant_noise_pq: float = 0.0
    attention_backend: str = "auto"
    classifier_dropout: float | None = None
    classifier_act: str = "tanh"
    classifier_norm: bool = False
    classifier_pooling: str = "cls"
    pooler_dropout: float | None = None
    initializer_range: float = 0.02
    tie_word_embeddings: bool = True
    bos_token_id: int | None = 0
    pad_token_id: int | None = 1
    eos_token_id: int | None = 2
    sparse_prediction: bool = False

    def __init__(self, **kwargs: Any):
        values = {name: kwargs.pop(name, value) for name, value in TupeConfig.defaults().items()}
        if type(self).__module__.startswith("tupe_fairseq."):
            # Classes of the package are saved without code, so the configuration names none.
            kwargs.pop("auto_map", None)
        super().__init__(**kwargs)
        # Afterwards, because transformers 4 and 5 set different ones of these themselves.
        for name, value in values.items():
            setattr(self, name, value)
        self.position_options = without_deleted(self.position_options or {})

    @staticmethod
    def defaults() -> dict[str, Any]:
        """All settings by name, with their default values."""
        settings = {name: getattr(TupeConfig, name) for name in TupeConfig.__annotations__}
        options = (*model_options(), *declared_options(LayerOptions))
        return {**settings, **{each.name: each.default for each in options}}

    def check_numbers(self) -> None:
        """Check types and ranges, which a damaged file may not have.

        Raises:
            ConfigurationError: a size is not a positive integer, a dropout probability is not a
                number from 0 to 1, another number is out of range, or is_decoder is true.
        """
        # Configurations that version 0.3.0 or older has written.
        if getattr(self, "is_decoder", False):
            raise ConfigurationError(
                "is_decoder is True, but must be False: the last version with TupeForCausalLM is "
                "tupe_fairseq 0.3.0."
            )
        for name in SIZES:
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ConfigurationError(f"{name} is {value!r}, but must be a positive integer.")
        for name in DROPOUTS:
            value = getattr(self, name)
            if name in ("classifier_dropout", "pooler_dropout") and value is None:
                continue
            if type(value) not in (int, float) or not 0 <= value <= 1:
                raise ConfigurationError(f"{name} is {value!r}, but must be a number from 0 to 1.")
        if type(self.type_vocab_size) is not int or self.type_vocab_size < 0:
            raise ConfigurationError(
                f"type_vocab_size is {self.type_vocab_size!r}, but must be a number, 0 for none."
            )
        epsilon = self.layer_norm_eps
        if type(epsilon) not in (int, float) or not 0 < epsilon < math.inf:
            raise ConfigurationError(
                f"layer_norm_eps is {epsilon!r}, but must be a number above 0."
            )
