"""The encoder of `tupe_roberta`: words to hidden states, with fairseq's names and shapes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from fairseq import utils
from fairseq.distributed import fsdp_wrap
from fairseq.modules.quant_noise import quant_noise
from torch import Tensor, nn

from ..arguments.flags import position_options
from ..checkpoints.migration import rename_old_layers
from ..errors import UsageError
from ..modules.encoder import Encoder
from ..position import PositionEncoding, build_position_encoding
from ..position.hierarchical import extend


class TupeSentenceEncoder(Encoder):
    """Word embeddings and `Encoder`, in place of fairseq's TransformerEncoder.

    Args:
        args: arguments of the model, complete.
        embed_tokens: word embeddings.
        embed_positions: positions; those that the arguments ask for where None.
    """

    def __init__(
        self,
        args: Any,
        embed_tokens: nn.Embedding,
        embed_positions: PositionEncoding | None = None,
    ):
        if embed_positions is None:
            embed_positions = build_position_encoding(
                args.position_encoding,
                args.encoder_embed_dim,
                args.encoder_attention_heads,
                args.max_positions,
                vocab_size=embed_tokens.num_embeddings,
                **position_options(args),
            )
        super().__init__(
            embed_positions,
            num_layers=args.encoder_layers,
            ffn_dim=args.encoder_ffn_embed_dim,
            activation_fn=activation(args.activation_fn),
            dropout=args.dropout,
            attention_dropout=args.attention_dropout,
            activation_dropout=args.activation_dropout,
            normalize_before=args.encoder_normalize_before,
            layernorm_embedding=args.layernorm_embedding,
            layerdrop=args.encoder_layerdrop,
            checkpoint_activations=args.checkpoint_activations,
            attention_backend=args.attention_backend,
            compile_layers=args.compile_layers,
        )
        self.embed_tokens = embed_tokens
        self.embed_scale = self.embed_positions.word_scale
        self.extend_positions = args.extend_positions
        self.padding_idx = embed_tokens.padding_idx
        # In fairseq's state dicts: 3 says that LayerNorms are where their names say.
        self.register_buffer("version", torch.tensor([3.0]))
        self._add_quantization_noise(args)
        self._wrap_layers(args)

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
    ) -> dict[str, list[Tensor]]:
        """Encode token ids; the result has the keys and shapes of fairseq's TransformerEncoder.

        Args:
            src_tokens: ids, B×T, padded on the right.
            src_lengths: not used, as in fairseq.
            return_all_hiddens: also return the first layer's input and each layer's output.
            token_embeddings: B×T×C, to take the place of the word embeddings.

        Raises:
            UsageError: more than max_positions tokens, padding before the first token, or an id
                that the dictionary has not.
        """
        padding_mask = src_tokens.eq(self.padding_idx)
        if token_embeddings is None:
            token_embeddings = self._words(src_tokens)
        if self.embed_scale != 1:
            token_embeddings = self.embed_scale * token_embeddings
        x, states = self.encode(
            token_embeddings,
            padding_mask if padding_mask.any() else None,
            src_tokens,
            keep_states=return_all_hiddens,
        )
        return {
            # B×T×C -> T×B×C
            "encoder_out": [x.transpose(0, 1)],
            "encoder_padding_mask": [padding_mask],
            "encoder_embedding": [token_embeddings],
            "encoder_states": [state.transpose(0, 1) for state in states],
            "src_tokens": [],
            "src_lengths": [(~padding_mask).sum(dim=1, keepdim=True, dtype=torch.int32)],
        }

    def _words(self, tokens: Tensor) -> Tensor:
        try:
            return self.embed_tokens(tokens)
        # On a CPU; looking at every batch before would cost time on a GPU.
        except IndexError as error:
            raise UsageError(
                f"the data hold the id {int(tokens.max())}, but the dictionary has "
                f"{self.embed_tokens.num_embeddings} symbols: the data are damaged, or were "
                "binarised with another dictionary; run fairseq-preprocess again."
            ) from error

    def _embed(self, *of_batch):
        x = super()._embed(*of_batch)
        return x if self.quant_noise is None else self.quant_noise(x)

    def _add_quantization_noise(self, args: Any) -> None:
        """Fan*, Stock* et al. 2020, on the matrices that fairseq puts it on."""
        noise, block = args.quant_noise_pq, args.quant_noise_pq_block_size
        width = self.embed_tokens.embedding_dim
        self.quant_noise = (
            quant_noise(nn.Linear(width, width, bias=False), noise, block) if noise > 0 else None
        )
        add_quantization_noise(self.layers, noise, block)

    def _wrap_layers(self, args: Any) -> None:
        wrap_layers(self.layers, 0 if args.checkpoint_activations else args.min_params_to_wrap)

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Bring old fairseq state dicts to today's names, in place.

        Renames `layer_norms.0/1` and splits the joint `in_proj_weight`/`in_proj_bias` of
        attention, as fairseq's own modules do; drops the second copies of a layer's weights that
        fairseq 0.12.2 keeps. With --extend-positions continues tables of positions that are
        shorter than the model's.
        """
        rename_old_layers(state_dict, name, ("self_attn_layer_norm", "final_layer_norm"))
        if self.extend_positions == "hierarchical":
            extend(self.embed_positions, state_dict, f"{name}.embed_positions.")
        # Checkpoints from elsewhere may lack the marker.
        state_dict.setdefault(f"{name}.version", self.version.clone())


def add_quantization_noise(layers: Iterable[nn.Module], noise: float, block: int) -> None:
    """On the matrices of attention and feed-forward (Fan*, Stock* et al. 2020)."""
    names = ("q_proj", "k_proj", "v_proj", "out_proj")
    for layer in layers:
        attentions = [layer.self_attn, getattr(layer, "encoder_attn", None)]
        matrices = [
            getattr(attention, name) for attention in attentions if attention for name in names
        ]
        for matrix in (*matrices, layer.fc1, layer.fc2):
            quant_noise(matrix, noise, block)


def wrap_layers(layers: nn.ModuleList, smallest: int) -> None:
    """For --ddp-backend fully_sharded; otherwise fsdp_wrap returns the layer as it is."""
    for i, layer in enumerate(list(layers.children())):
        layers[i] = fsdp_wrap(layer, min_num_params=smallest)


def activation(name: str):
    """Fairseq's function of that name; gelu without fairseq's detour over fp32 copies."""
    return F.gelu if name == "gelu" else utils.get_activation_fn(name)
