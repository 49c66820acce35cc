"""The decoder of `tupe_transformer` and `tupe_transformer_lm`, with fairseq's interface."""

import copy
from typing import Any

from fairseq.models.transformer import TransformerConfig, TransformerDecoderBase
from torch import Tensor, nn

from .. import commands
from ..attention import Padding, Source
from ..checkpoints.migration import drop_stock_sinusoids, rename_old_layers
from ..modules.cache import DecoderCache
from ..modules.encoder import Encoder
from ..modules.padding_shift import PaddingShift
from ..position.hierarchical import extend
from .fairseq_layers import activation, add_quantization_noise, wrap_layers
from .positions import build_transformer_positions

CACHE = "decoder_cache"


class TupeTransformerDecoder(Encoder, TransformerDecoderBase):
    """Embeddings, output layer and generation are fairseq's; positions and layers are ours.

    Args:
        cfg: arguments of the model.
        dictionary: of the target language.
        embed_tokens: token embeddings.
        no_encoder_attn: a language model, which attends to no source.
    """

    length_limit = ("--max-target-positions", "shorten it")
    # What fairseq's constructor sets.
    embed_tokens: nn.Module
    project_in_dim: nn.Module | None
    project_out_dim: nn.Module | None
    quant_noise: nn.Module | None
    padding_idx: Any
    version: Tensor
    get_incremental_state: Any
    set_incremental_state: Any

    def __init__(
        self,
        cfg: TransformerConfig,
        dictionary: Any,
        embed_tokens: nn.Module,
        no_encoder_attn: bool = False,
    ):
        positions = build_transformer_positions(
            cfg, "decoder", cfg.max_target_positions, len(dictionary)
        )
        super().__init__(
            positions,
            num_layers=cfg.decoder.layers,
            ffn_dim=cfg.decoder.ffn_embed_dim,
            activation_fn=activation(cfg.activation_fn),
            dropout=cfg.dropout,
            attention_dropout=cfg.attention_dropout,
            activation_dropout=cfg.activation_dropout,
            normalize_before=cfg.decoder.normalize_before,
            layernorm_embedding=cfg.layernorm_embedding,
            layerdrop=cfg.decoder.layerdrop,
            checkpoint_activations=cfg.checkpoint_activations,
            attention_backend=cfg.attention_backend,
            causal=True,
            source_dim=None if no_encoder_attn else cfg.encoder.embed_dim,
            final_norm=cfg.decoder.normalize_before and not cfg.no_decoder_final_norm,
            cfg=_without_layers(cfg),
            dictionary=dictionary,
            embed_tokens=embed_tokens,
            no_encoder_attn=no_encoder_attn,
        )
        self.cfg = cfg
        self.num_layers = len(self.layers)
        add_quantization_noise(self.layers, cfg.quant_noise.pq, cfg.quant_noise.pq_block_size)
        wrap_layers(self.layers, cfg.checkpoint_activations, cfg.min_params_to_wrap)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """As fairseq's decoder."""
        return TransformerDecoderBase.forward(self, *args, **kwargs)

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
        how: dict[str, Any] = {
            "keep_states": True,
            "source": self._source(encoder_out, cache),
            "aligned": self._aligned(alignment_layer),
        }
        shift = None
        if cache is None:
            padding = Padding.read(tokens.eq(self.padding_idx))
            shift = PaddingShift.of(padding)
            if shift is not None:
                tokens, padding = shift.to_end(tokens), shift.padding
            causal = not full_context_alignment
            x, states, weights = self.encode(self._words(tokens), padding, tokens, causal, **how)
        else:
            tokens = tokens[:, cache.length :]
            x, states, weights = self.extend(self._words(tokens), cache, tokens, **how)
        if self.project_out_dim is not None:
            x = self.project_out_dim(x)
        if weights is not None:
            # B×H×T×S -> B×T×S
            weights = weights[:, :alignment_heads].float().mean(1).to(x)
        return self._as_fairseq(shift, x, weights, states)

    def _aligned(self, layer: int | None) -> int | None:
        """The layer whose attention to the source is returned."""
        if layer is None and not self.training:
            return self.num_layers - 1
        return layer

    def _words(self, tokens: Tensor) -> Tensor:
        """Token embeddings, B×T×C."""
        x = self.embed_scale * self.embed_tokens(tokens)
        if self.quant_noise is not None:
            x = self.quant_noise(x)
        return x if self.project_in_dim is None else self.project_in_dim(x)

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

    def reorder_incremental_state_scripting(
        self, incremental_state: dict[str, dict[str, Any]], new_order: Tensor
    ) -> None:
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
