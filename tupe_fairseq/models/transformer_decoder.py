"""The decoder of `tupe_transformer` and `tupe_transformer_lm`, with fairseq's interface."""

import copy
from typing import Any

from fairseq.models.transformer import TransformerConfig, TransformerDecoderBase
from torch import Tensor, nn

from .. import commands
from ..attention import (
    CrossAttention,
    Layout,
    Padding,
    SharedAttention,
    Source,
    TupeMultiheadAttention,
)
from ..checkpoints.migration import drop_stock_sinusoids, rename_old_layers
from ..errors import DataError
from ..kernels.dropout import Dropout
from ..modules.decoder_cache import DecoderCache
from ..modules.decoder_layer import DecoderLayer
from ..modules.padding_shift import PaddingShift
from ..modules.stack import LayerStack
from ..position import PositionEncoding
from ..position.hierarchical import extend
from .fairseq_layers import activation, add_quantization_noise, wrap_layers
from .positions import build_transformer_positions

CACHE = "decoder_cache"


class TupeTransformerDecoder(TransformerDecoderBase):
    """Embeddings, output layer and generation are fairseq's; positions and layers are ours.

    Args:
        cfg: arguments of the model.
        dictionary: of the target language.
        embed_tokens: token embeddings.
        no_encoder_attn: a language model, which attends to no source.
    """

    def __init__(
        self,
        cfg: TransformerConfig,
        dictionary: Any,
        embed_tokens: nn.Module,
        no_encoder_attn: bool = False,
    ):
        super().__init__(_without_layers(cfg), dictionary, embed_tokens, no_encoder_attn)
        self.cfg = cfg
        self.dropout_module = Dropout(cfg.dropout)
        self.embed_positions = build_transformer_positions(
            cfg, "decoder", cfg.max_target_positions, len(dictionary)
        )
        self.layers = LayerStack(
            self.embed_positions,
            lambda attention: self._build_layer(attention, no_encoder_attn),
            cfg.decoder.layers,
            cfg.attention_dropout,
            cfg.attention_backend,
            causal=True,
            layerdrop=cfg.decoder.layerdrop,
            checkpoint_activations=cfg.checkpoint_activations,
        )
        self.num_layers = len(self.layers)
        add_quantization_noise(self.layers, cfg.quant_noise.pq, cfg.quant_noise.pq_block_size)
        wrap_layers(self.layers, cfg.checkpoint_activations, cfg.min_params_to_wrap)

    def _build_layer(
        self, self_attn: TupeMultiheadAttention, no_encoder_attn: bool
    ) -> DecoderLayer:
        cfg, encoder_attn = self.cfg, None
        if not no_encoder_attn:
            encoder_attn = CrossAttention(
                cfg.decoder.embed_dim,
                cfg.decoder.attention_heads,
                cfg.encoder.embed_dim,
                cfg.attention_dropout,
            )
        return DecoderLayer(
            self_attn,
            encoder_attn,
            cfg.decoder.ffn_embed_dim,
            activation(cfg.activation_fn),
            cfg.dropout,
            cfg.activation_dropout,
            cfg.decoder.normalize_before,
        )

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]] | None = None,
        incremental_state: dict[str, dict[str, Any]] | None = None,
        full_context_alignment: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
    ) -> tuple[Tensor, dict[str, list[Tensor | None]]]:
        """Hidden states before the output layer, as fairseq's decoder gives them.

        Args:
            prev_output_tokens: ids, B×T; with an incremental state only the last token is read.
            encoder_out: what the encoder returned, or None.
            incremental_state: of a generation, which grows by one token; or None.
            full_context_alignment: let tokens see later ones (Garg et al. 2019).
            alignment_layer: whose attention to the source to return; default the last, and in
                training none.
            alignment_heads: average over the first so many heads only.

        Returns:
            Features, B×T×C, and {"attn": [B×T×S or None], "inner_states": [T×B×C, ...]}.
        """
        cache = self._cache(incremental_state)
        tokens = prev_output_tokens
        padding = Padding.read(tokens.eq(self.padding_idx)) if cache is None else None
        shift = PaddingShift.of(padding)
        if shift is not None:
            tokens, padding = shift.to_end(tokens), shift.padding
        x, shared = self._start(tokens, padding, cache, causal=not full_context_alignment)
        source = self._source(encoder_out, cache)
        aligned = alignment_layer
        if aligned is None and not self.training:
            aligned = self.num_layers - 1
        x, states, weights = self._run(x, shared, source, cache, aligned)
        if weights is not None:
            # B×H×T×S -> B×T×S
            weights = weights[:, :alignment_heads].float().mean(1).to(x)
        return self._as_fairseq(shift, self._finish(x), weights, states)

    def _run(
        self,
        x: Tensor,
        shared: list[SharedAttention],
        source: Source | None,
        cache: DecoderCache | None,
        aligned: int | None,
    ) -> tuple[Tensor, list[Tensor], Tensor | None]:
        """Output of the layers, the states between them, and the weights of layer `aligned`."""
        states, found = [x], None
        for index, layer in self.layers.active():
            own = None if cache is None else cache.layers[index]
            x, weights = layer(x, shared[index], source, own, index == aligned)
            found = weights if index == aligned else found
            states.append(x)
        return x, states, found

    def _finish(self, x: Tensor) -> Tensor:
        """What follows the last layer."""
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        return x if self.project_out_dim is None else self.project_out_dim(x)

    def _start(
        self, tokens: Tensor, padding: Padding | None, cache: DecoderCache | None, causal: bool
    ) -> tuple[Tensor, list[SharedAttention]]:
        """Input of the first layer, and what each layer needs."""
        self._check_length(tokens.size(1))
        if cache is not None:
            x = self._embed(tokens, self.embed_positions, last=True)
            return x, cache.step(tokens.size(1) - 1, x)
        positions = self.embed_positions.for_pass(tokens.size(1), tokens.device)
        x = self._embed(tokens, positions)
        # Causal attention needs no mask: tokens do not attend to padding at the end.
        layout = Layout(x.size(0), x.size(1))
        if padding is not None and not causal:
            layout = Layout(x.size(0), x.size(1), padding.mask)
        return x, self.layers.share(positions, x, layout, causal)

    def _embed(self, tokens: Tensor, positions: PositionEncoding, last: bool = False) -> Tensor:
        """Tokens and positions: B×T×C, or of the last token alone, B×1×C."""
        start = 0
        if last:
            start = max(0, tokens.size(1) - 1 - positions.context)
            tokens = tokens[:, start:]
        x = self.embed_scale * self.embed_tokens(tokens)
        if self.quant_noise is not None:
            x = self.quant_noise(x)
        if self.project_in_dim is not None:
            x = self.project_in_dim(x)
        x = positions.embed(x, tokens, start=start)
        x = x[:, -1:] if last else x
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        return self.dropout_module(x)

    def _check_length(self, length: int) -> None:
        if length > self.max_positions():
            raise DataError(
                f"a sequence has {length} tokens, but --max-target-positions is "
                f"{self.max_positions()}: shorten it, or train with more."
            )

    def _source(
        self, encoder_out: dict[str, list[Tensor]] | None, cache: DecoderCache | None
    ) -> Source | None:
        if cache is not None and cache.source is not None:
            return cache.source
        if not encoder_out or not encoder_out["encoder_out"]:
            return None
        masks = encoder_out["encoder_padding_mask"]
        mask = masks[0] if masks else None
        # S×B×C -> B×S×C
        vectors = encoder_out["encoder_out"][0].transpose(0, 1)
        source = Source(vectors, mask, self.cfg.attention_backend)
        return source if cache is None else cache.attend_to(source, getattr(self, "_beam_size", 1))

    @commands.ends_commands_in_one_line
    def _cache(self, incremental_state: dict[str, dict[str, Any]] | None) -> DecoderCache | None:
        if incremental_state is None:
            return None
        found = self.get_incremental_state(incremental_state, CACHE)
        if found is None:
            found = {CACHE: DecoderCache(self.embed_positions, self.layers)}
            self.set_incremental_state(incremental_state, CACHE, found)
        return found[CACHE]

    def reorder_incremental_state(
        self, incremental_state: dict[str, dict[str, Any]], new_order: Tensor
    ) -> None:
        """Hypothesis i becomes what hypothesis new_order[i] was."""
        if (found := self.get_incremental_state(incremental_state, CACHE)) is not None:
            found[CACHE].reorder(new_order)

    def reorder_incremental_state_scripting(self, incremental_state, new_order) -> None:
        """Called by fairseq's beam search: reorders the whole decoder state."""
        self.reorder_incremental_state(incremental_state, new_order)

    def max_positions(self) -> int:
        """Longest sequence, in tokens."""
        return self.embed_positions.shape.max_positions

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """As fairseq's; with --extend-positions continues tables of positions that are shorter."""
        norms = ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm")
        rename_old_layers(state_dict, name, norms)
        drop_stock_sinusoids(state_dict, name)
        if self.cfg.extend_positions == "hierarchical":
            extend(self.embed_positions, state_dict, f"{name}.embed_positions.")
        state_dict.setdefault(f"{name}.version", self.version.clone())
        super().upgrade_state_dict_named(state_dict, name)

    @staticmethod
    def _as_fairseq(
        shift: PaddingShift | None, x: Tensor, weights: Tensor | None, states: list[Tensor]
    ) -> tuple[Tensor, dict[str, list[Tensor | None]]]:
        if shift is not None:
            x, states = shift.back(x), [shift.back(state) for state in states]
            weights = None if weights is None else shift.back(weights)
        # B×T×C -> T×B×C
        return x, {"attn": [weights], "inner_states": [state.transpose(0, 1) for state in states]}


def _without_layers(cfg: TransformerConfig) -> TransformerConfig:
    """For fairseq's constructor, whose layers and positions would be thrown away."""
    bare = copy.deepcopy(cfg)
    bare.decoder.layers = 0
    bare.no_token_positional_embeddings = True
    return bare
