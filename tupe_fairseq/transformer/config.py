"""What a stack of layers is built from, besides its position encoding."""

from collections.abc import Callable
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from ..base.errors import ConfigurationError
from .layer_options import USUAL, LayerOptions


@dataclass(frozen=True)
class StackConfig:
    """The settings of a `TransformerStack`, which its layers read too.

    Attributes:
        num_layers: layers L.
        ffn_dim: feed-forward width.
        activation_fn: activation of the feed-forward block, unless that has a gate.
        dropout: on the input and on the output of every block.
        attention_dropout: on attention weights.
        activation_dropout: after activation_fn.
        normalize_before: pre-LN layers, and a final LayerNorm; otherwise post-LN (Vaswani et al.
            2017).
        layernorm_embedding: LayerNorm on the input, as BERT has.
        layerdrop: probability of skipping a layer in training (Fan et al. 2019).
        checkpoint_activations: recompute layers in the backward pass instead of storing them.
        attention_backend: a registered backend or "auto".
        compile_layers: run the layers through torch.compile; None: from the first pass in training
            on, on GPUs where that works.
        causal: mask later tokens, as a language model does.
        source_dim: width of the source that every layer attends to, or None without a source.
        final_norm: LayerNorm after the last layer; None: that of pre-LN layers.
        token_types: number of token types, each with an embedding; BERT calls them segments.
        layer_options: gates, norms and biases.

    Raises:
        ConfigurationError: post-LN layers without the first norm.
    """

    num_layers: int
    ffn_dim: int
    activation_fn: Callable[[Tensor], Tensor] = F.gelu
    dropout: float = 0.1
    attention_dropout: float = 0.1
    activation_dropout: float = 0.0
    normalize_before: bool = False
    layernorm_embedding: bool = False
    layerdrop: float = 0.0
    checkpoint_activations: bool = False
    attention_backend: str = "auto"
    compile_layers: bool | None = False
    causal: bool = False
    source_dim: int | None = None
    final_norm: bool | None = None
    token_types: int = 0
    layer_options: LayerOptions = USUAL

    def __post_init__(self) -> None:
        if not (self.layer_options.first_attention_norm or self.normalize_before):
            raise ConfigurationError(
                "--no-first-attention-norm is for pre-LN models: add --encoder-normalize-before "
                "(normalize_before), or leave it out."
            )

    @property
    def has_final_norm(self) -> bool:
        """Whether there is a LayerNorm after the last layer."""
        return self.normalize_before if self.final_norm is None else self.final_norm
