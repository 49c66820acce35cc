"""The decoder of `tupe_transformer` and `tupe_transformer_lm`, with fairseq's interface."""

import copy
from typing import Any

from fairseq.models.transformer import TransformerConfig, TransformerDecoderBase
from torch import Tensor, nn

from ...attention import Padding, Source
from ...transformer.decoding import DecoderCache
from ...transformer.forward_pass import Pass
from ...transformer.padding_shift import PaddingShift
from .. import commands
from .fairseq_layers import FairseqStack, stack_config

CACHE = "decoder_cache"


class TupeTransformerDecoder(FairseqStack, TransformerDecoderBase):
    """Embeddings, output layer and generation are fairseq's; positions and layers are ours.

    Args:
        cfg: arguments of the model.
        dictionary: of the target language.
        embed_tokens: token embeddings.
        no_encoder_attn: a language model, which attends to no source.
    """

    longest = "max_target_positions"
    length_limit = ("--max-target-positions", "shorten it")
    #: Whether training reads the attention to the source.
    aligns_in_training = False
    norms = ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm")
    # What fairseq's constructor sets.
    embed_tokens: nn.Module
    project_in_dim: nn.Module | None
    project_out_dim: nn.Module | None
    quant_noise: nn.Module | None
    padding_idx: Any
    get_incremental_state: Any
    set_incremental_state: Any

    def __init__(
        self,
        cfg: TransformerConfig,
        dictionary: Any,
        embed_tokens: nn.Module,
        no_encoder_attn: bool = False,
    ):
        config = stack_config(
            cfg,
            "decoder",
            causal=True,
            source_dim=None if no_encoder_attn else cfg.encoder.embed_dim,
            final_norm=cfg.decoder.normalize_before and not cfg.no_decoder_final_norm,
        )
        super().__init__(
            cfg,
            "decoder",
            dictionary,
            config,
            cfg=_without_layers(cfg),
            embed_tokens=embed_tokens,
            no_encoder_attn=no_encoder_attn,
        )
        self.cfg = cfg
        self.num_layers = len(self.layers)

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
            alignment_layer: whose attention to the source to return; default the last, but none
                in training without --load-alignments.
            alignment_heads: average over the first so many heads only.

        Returns:
            Features, B×T×C, and {"attn": [B×T×S or None], "inner_states": [T×B×C, ...]}.
        """
        if alignment_layer is None and (self.aligns_in_training or not self.training):
            alignment_layer = self.num_layers - 1
        cache = self._cache(incremental_state)
        tokens = prev_output_tokens
        padding = None if cache is not None else Padding.read(tokens.eq(self.padding_idx))
        shift = PaddingShift.of(padding)
        source = self._source(encoder_out, cache)
        tokens = shift.to_end(tokens) if cache is None else tokens[:, cache.length :]
        wanted = Pass(
            tokens,
            source=source,
            causal=not full_context_alignment,
            keep_states=True,
            aligned=alignment_layer,
        )
        embedded = self._embedded(tokens)
        if cache is None:
            x, states, weights = self.encode(embedded, shift.padding, wanted)
        else:
            x, states, weights = self.extend(embedded, cache, wanted)
        if self.project_out_dim is not None:
            x = self.project_out_dim(x)
        if weights is not None:
            # B×H×T×S -> B×T×S
            weights = shift.back(weights[:, :alignment_heads].float().mean(1).to(x))
        # B×T×C -> T×B×C
        inner = [shift.back(state).transpose(0, 1) for state in states]
        return shift.back(x), {"attn": [weights], "inner_states": [*inner]}

    def _embedded(self, tokens: Tensor) -> Tensor:
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
        state = self.get_incremental_state(incremental_state, CACHE)
        if state is None:
            state = {CACHE: DecoderCache(self.embed_positions, self.layers)}
            self.set_incremental_state(incremental_state, CACHE, state)
        return state[CACHE]

    def reorder_incremental_state(
        self, incremental_state: dict[str, dict[str, Any]], new_order: Tensor
    ) -> None:
        """Hypothesis i becomes what hypothesis new_order[i] was."""
        state = self.get_incremental_state(incremental_state, CACHE)
        if state is not None:
            state[CACHE].reorder(new_order)

    #: Called by fairseq's beam search, for all modules at once.
    reorder_incremental_state_scripting = reorder_incremental_state

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """As `FairseqStack`'s, then as fairseq's decoder."""
        super().upgrade_state_dict_named(state_dict, name)
        TransformerDecoderBase.upgrade_state_dict_named(self, state_dict, name)


def _without_layers(cfg: TransformerConfig) -> TransformerConfig:
    """Settings for fairseq's constructor, without layers and positions, which are not used."""
    bare = copy.deepcopy(cfg)
    bare.decoder.layers = 0
    bare.no_token_positional_embeddings = True
    return bare
