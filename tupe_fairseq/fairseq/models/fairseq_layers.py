"""What fairseq's flags and interface add to our stack of layers."""

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from fairseq import utils
from fairseq.data import Dictionary
from fairseq.distributed import fsdp_wrap
from fairseq.modules.quant_noise import quant_noise
from torch import Tensor, nn

from ...position import PositionEncoding, build_position_encoding, model_options
from ...position.hierarchical import extend
from ...position.initial import isolated_rng
from ...position.learned import LearnedPosition
from ...transformer.config import StackConfig
from ...transformer.layer_options import LayerOptions
from ...transformer.stack import TransformerStack
from ..arguments.completion import position_options
from ..checkpoints.migration import drop_stock_sinusoids, rename_old_layers


class FairseqStack(TransformerStack):
    """`TransformerStack` with the arguments and the interface of fairseq's encoders and decoders.

    Args:
        args: arguments of the model, complete.
        side: "encoder", or "decoder", which is causal.
        dictionary: of the tokens.
        config: from `stack_config`.
        **more: further arguments of fairseq's class.
    """

    version: Tensor
    #: The argument that limits the length of sequences.
    longest: str
    #: Whether learned positions begin as large as in fairseq's transformers.
    large_positions = True
    #: LayerNorms of a layer, in the order in which old checkpoints number them.
    norms: tuple[str, ...] = ("self_attn_layer_norm", "final_layer_norm")

    def __init__(
        self, args: Any, side: str, dictionary: Dictionary, config: StackConfig, **more: Any
    ):
        positions = self._build_positions(args, side, len(dictionary))
        super().__init__(positions, config, dictionary=dictionary, **more)
        self.extend_positions = args.extend_positions
        add_quantization_noise(self.layers, args.quant_noise_pq, args.quant_noise_pq_block_size)
        # For --ddp-backend fully_sharded; fsdp_wrap does nothing otherwise. Layers whose
        # activations are recomputed are all wrapped.
        smallest = 0 if args.checkpoint_activations else args.min_params_to_wrap
        for i, layer in enumerate(list(self.layers)):
            self.layers[i] = fsdp_wrap(layer, min_num_params=smallest)

    def _build_positions(self, args: Any, side: str, vocab_size: int) -> PositionEncoding:
        encoding = build_position_encoding(
            args.position_encoding,
            getattr(args, f"{side}_embed_dim"),
            getattr(args, f"{side}_attention_heads"),
            getattr(args, self.longest),
            bidirectional=side == "encoder",
            vocab_size=vocab_size,
            num_layers=getattr(args, f"{side}_layers"),
            **{option.name: getattr(args, option.name) for option in model_options()},
            **position_options(args),
        )
        if self.large_positions:
            # Around the second condition, so that all encodings leave the same random numbers.
            with isolated_rng():
                if isinstance(encoding, LearnedPosition):
                    encoding.enlarge()
        return encoding

    def max_positions(self) -> int:
        """Longest sequence, in tokens."""
        return self.embed_positions.shape.max_positions

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Bring old fairseq state dicts to today's names, in place; see `checkpoints.migration`.

        With --extend-positions, extends position tables that are shorter than the model's.
        """
        drop_stock_sinusoids(state_dict, name)
        rename_old_layers(state_dict, name, self.norms)
        if self.extend_positions == "hierarchical":
            extend(self.embed_positions, state_dict, f"{name}.embed_positions.")
        # Checkpoints from elsewhere may lack the marker.
        state_dict.setdefault(f"{name}.version", self.version.clone())


def stack_config(args: Any, side: str, **more: Any) -> StackConfig:
    """What the layers read of fairseq's arguments, and more settings."""

    def of_side(name: str) -> Any:
        return getattr(args, f"{side}_{name}")

    return StackConfig(
        num_layers=of_side("layers"),
        ffn_dim=of_side("ffn_embed_dim"),
        activation_fn=activation(args.activation_fn),
        dropout=args.dropout,
        attention_dropout=args.attention_dropout,
        activation_dropout=args.activation_dropout,
        normalize_before=of_side("normalize_before"),
        layernorm_embedding=args.layernorm_embedding,
        layerdrop=of_side("layerdrop"),
        checkpoint_activations=args.checkpoint_activations,
        attention_backend=args.attention_backend,
        layer_options=LayerOptions.of(args),
        **more,
    )


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """Fairseq's function of that name; gelu without fairseq's fp32 copies."""
    return F.gelu if name == "gelu" else utils.get_activation_fn(name)


def add_quantization_noise(layers: nn.ModuleList, noise: float, block: int) -> None:
    """Add noise to the matrices of attention and feed-forward (Fan*, Stock* et al. 2020)."""
    for layer in layers:
        attentions = [layer.self_attn, *([layer.encoder_attn] if layer.encoder_attn else [])]
        projections = [
            getattr(attention, name)
            for attention in attentions
            for name in ("q_proj", "k_proj", "v_proj", "out_proj")
        ]
        for matrix in (*projections, layer.fc1, layer.fc2):
            quant_noise(matrix, noise, block)
