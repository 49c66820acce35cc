"""`TupeConfig`: the configuration of the models for transformers."""

from typing import Any

from transformers import PretrainedConfig

from ..errors import ConfigurationError

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
    "classifier_dropout",
)


class TupeConfig(PretrainedConfig):
    """Configuration of an encoder, or of a language model, with a position encoding.

    Names and defaults are those of RoBERTa in transformers where the meaning is the same.

    Args:
        vocab_size: tokens in the vocabulary V.
        hidden_size: model width C.
        num_hidden_layers: layers L.
        num_attention_heads: heads H, a divisor of hidden_size.
        intermediate_size: feed-forward width.
        hidden_act: activation of feed-forward blocks and of the language modeling head.
        hidden_dropout_prob: on the input and on the output of every block.
        attention_probs_dropout_prob: on attention weights.
        activation_dropout: after the activation of feed-forward blocks.
        max_position_embeddings: longest sequence, in tokens.
        position_encoding: name of a registered encoding.
        position_options: the options of that encoding by name; others have their defaults.
        attention_window: largest distance at which tokens attend to each other; None: no limit.
            An untied [CLS] is outside of it: it is visible to all tokens and sees all.
        global_every: layers 0, N, 2N, ... have no window; 0: all layers have it.
        layernorm_embedding: LayerNorm on the input, as BERT has.
        normalize_before: pre-LN layers and a final LayerNorm.
        embedding_scale: factor of the token embeddings.
        attention_backend: backend under attn_implementation "sdpa": "auto" or a registered one.
        classifier_dropout: of classification heads; None: hidden_dropout_prob.
        classifier_act: activation of the head for sequence classification.
        initializer_range: standard deviation of new weights.
        is_decoder: later tokens are hidden, as in a language model.
        tie_word_embeddings: the output layer uses the token embeddings as its weight.
        bos_token_id: of `<s>`.
        pad_token_id: of padding.
        eos_token_id: of `</s>`.
        use_cache: `generate` keeps the keys and values of earlier tokens where it can.
        **kwargs: other settings of transformers.
    """

    model_type = "tupe"

    def __init__(
        self,
        vocab_size: int = 50265,
        hidden_size: int = 768,
        num_hidden_layers: int = 12,
        num_attention_heads: int = 12,
        intermediate_size: int = 3072,
        hidden_act: str = "gelu",
        hidden_dropout_prob: float = 0.1,
        attention_probs_dropout_prob: float = 0.1,
        activation_dropout: float = 0.0,
        max_position_embeddings: int = 512,
        position_encoding: str = "tupe_r",
        position_options: dict[str, Any] | None = None,
        attention_window: int | None = None,
        global_every: int = 0,
        layernorm_embedding: bool = True,
        normalize_before: bool = False,
        embedding_scale: float = 1.0,
        attention_backend: str = "auto",
        classifier_dropout: float | None = None,
        classifier_act: str = "tanh",
        initializer_range: float = 0.02,
        is_decoder: bool = False,
        tie_word_embeddings: bool = True,
        bos_token_id: int | None = 0,
        pad_token_id: int | None = 1,
        eos_token_id: int | None = 2,
        use_cache: bool = True,
        **kwargs: Any,
    ):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.intermediate_size = intermediate_size
        self.hidden_act = hidden_act
        self.hidden_dropout_prob = hidden_dropout_prob
        self.attention_probs_dropout_prob = attention_probs_dropout_prob
        self.activation_dropout = activation_dropout
        self.max_position_embeddings = max_position_embeddings
        self.position_encoding = position_encoding
        self.position_options = dict(position_options or {})
        self.attention_window = attention_window
        self.global_every = global_every
        self.layernorm_embedding = layernorm_embedding
        self.normalize_before = normalize_before
        self.embedding_scale = embedding_scale
        self.attention_backend = attention_backend
        self.classifier_dropout = classifier_dropout
        self.classifier_act = classifier_act
        self.initializer_range = initializer_range
        self.use_cache = use_cache
        # transformers 4 and 5 differ in which of these they know.
        self.is_decoder = is_decoder
        self.tie_word_embeddings = tie_word_embeddings
        super().__init__(
            bos_token_id=bos_token_id,
            pad_token_id=pad_token_id,
            eos_token_id=eos_token_id,
            is_decoder=is_decoder,
            tie_word_embeddings=tie_word_embeddings,
            **kwargs,
        )
        self.is_decoder = is_decoder
        self.tie_word_embeddings = tie_word_embeddings

    def check_numbers(self) -> None:
        """Refuse numbers of another type or range, as a damaged file has.

        Raises:
            ConfigurationError: a size is not a positive integer, or a dropout no number from 0 to
                1.
        """
        for name in SIZES:
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ConfigurationError(f"{name} is {value!r}, but must be a positive integer.")
        for name in DROPOUTS:
            value = getattr(self, name)
            if name == "classifier_dropout" and value is None:
                continue
            if type(value) not in (int, float) or not 0 <= value <= 1:
                raise ConfigurationError(f"{name} is {value!r}, but must be a number from 0 to 1.")
