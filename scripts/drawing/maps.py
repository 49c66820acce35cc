"""Maps of positions for any encoding, as tensors; plots.py draws them."""

import copy
from typing import NamedTuple, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tupe_fairseq import ConfigurationError, PositionEncoding, TupeMultiheadAttention
from tupe_fairseq.position.complex_order import ComplexOrderPosition
from tupe_fairseq.transformer.analysis import encoding_of, positional_correlations
from tupe_fairseq.transformer.layer import TransformerLayer
from tupe_fairseq.transformer.stack import TransformerStack

_M = TypeVar("_M", bound=nn.Module)


class PositionMaps(NamedTuple):
    """How an encoding relates positions, independently of the tokens.

    Attributes:
        maps: N×T×T, queries in rows, keys in columns.
        names: of the N maps.
        meaning: of their values, in a phrase for a title.
    """

    maps: Tensor
    names: list[str]
    meaning: str


@torch.no_grad()
def position_maps(encoder: TransformerStack, length: int, layer: int = 1) -> PositionMaps:
    """Maps of positions for any encoding; what they show depends on the hooks that it uses.

    - a content-free term of the scores (TUPE, T5, ALiBi): `positional_correlations`
    - terms of a layer (Shaw, Transformer-XL, DeBERTa): what they add, see `_layer_maps`
    - rotations: q · k for a query and a key of ones, relative to distance 0
    - encodings of the input: the cosine of what they add to an input of ones

    Args:
        encoder: e.g. a `TUPEEncoder` or `model.encoder.sentence_encoder`.
        length: number of positions T.
        layer: counted from 1; matters for encodings that differ by layer.

    Raises:
        ConfigurationError: the encoding uses no positions, or `length` or `layer` is out of range.
    """
    encoding = encoding_of(encoder, length, layer)
    heads = [f"head {head + 1}" for head in range(encoding.shape.num_heads)]
    if encoding.uses("attention_bias"):
        maps = positional_correlations(encoder, length, layer)
        return PositionMaps(maps, heads, "what positions add to the scores")
    attention = _in_evaluation(cast(TransformerLayer, encoder.layers[layer - 1]).self_attn)
    if attention.layer_terms is not None:
        maps, meaning = _layer_maps(attention, encoding, length)
        return PositionMaps(maps, heads, f"{meaning}, layer {layer}")
    if encoding.uses("rotate"):
        device = next(encoder.parameters()).device
        ones = torch.ones(1, 1, length, encoding.shape.head_dim, device=device)
        # Frequencies may depend on the length.
        encoding = encoder.embed_positions.for_pass(length, device).at(layer - 1)
        q, k, _ = encoding.rotate(ones, ones, ones)
        maps = (q @ k.mT)[0]
        maps = maps / maps[:, :1, :1]
        return PositionMaps(maps, ["all heads"], "q · k of equal tokens, relative to distance 0")
    if encoder.embed_positions.uses("embed"):
        vectors = _position_vectors(encoder.embed_positions, length)
        maps = F.cosine_similarity(vectors[:, None], vectors[None], dim=-1)[None]
        return PositionMaps(maps, ["input"], "cosine of position vectors")
    raise ConfigurationError(
        f"{type(encoding).__name__} uses no positions, so there is nothing to draw."
    )


def _layer_maps(
    attention: TupeMultiheadAttention, encoding: PositionEncoding, length: int
) -> tuple[Tensor, str]:
    """One layer's score term, H×T×T, and its meaning.

    For rotations see `position_maps`. Any other term is affine in queries and keys. Its constant
    part is the value for an average token (Transformer-XL's v W_{K,R} R_{i−j}). If that is zero
    (Shaw, DeBERTa), the map shows the linear part: the root mean square of the term for queries
    and keys with independent entries of unit variance, for Shaw |R^K_{i−j}|/√D.
    """
    terms = attention.layer_terms
    assert terms is not None
    heads = encoding.shape.num_heads
    width = encoding.shape.head_dim
    zeros = attention.q_proj.weight.new_zeros(1, heads, length, width)
    if terms.uses("rotate"):
        ones = torch.ones_like(zeros)
        q, k, _ = terms.rotate(ones, ones, ones, encoding)
        maps = (q @ k.mT)[0]
        return maps / maps[:, :1, :1], "q · k of equal tokens, relative to distance 0"
    relative = terms.relative(encoding, length, attention)
    constant = relative.scores(zeros, zeros)[0]
    if constant.any():
        return constant, "added to the scores of average tokens"
    # D×H×T×D: query d is the d-th unit vector.
    unit = torch.eye(width).to(zeros)[:, None, None].expand(-1, heads, length, -1)
    none = zeros.expand_as(unit)
    scale = (encoding.score_terms * width) ** -0.5
    for_queries = relative.scores(unit * scale, none).square().sum(0)
    for_keys = relative.scores(none, unit).square().sum(0)
    return (for_queries + for_keys).sqrt(), "added to the scores, root mean square over tokens"


def _position_vectors(encoding: PositionEncoding, length: int) -> Tensor:
    """What an encoding adds to an input of ones at each position: T×C."""
    encoding = _in_evaluation(encoding)
    if isinstance(encoding, ComplexOrderPosition):
        return encoding.position_vectors(length)
    weight = next(encoding.parameters(), torch.empty(0))
    # A constant table is a buffer of integers.
    device = next(encoding.buffers(), weight).device
    ones = weight.new_ones(1, length, encoding.shape.embed_dim, device=device)
    return (encoding.embed(ones) - ones)[0]


def _in_evaluation(module: _M) -> _M:
    """A copy: in training, `cape` and `shape` draw positions, and `deberta` drops vectors."""
    return copy.deepcopy(module).eval()
