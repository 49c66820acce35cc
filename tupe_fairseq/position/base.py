"""The hooks by which a position encoding enters a Transformer.

Shape legend, used in every docstring of the package:
    B batch    T queries    S keys    C model width    H heads    D head width (C / H)
    N tokens without padding    E width of positional vectors    V vocabulary    L layers
    M attention matrices    R rows (defined where used)

An encoding overrides the hooks that its paper needs; each does nothing by default. Parameters
shared by all layers belong to the encoding, those of one layer to the module that
`build_layer_terms` returns. To add an encoding outside of the package, see
examples/add_an_encoding.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from ..base.errors import ConfigurationError
from ..base.options import Option, declared_options
from ..base.registry import Registry
from .bias import AttentionBias
from .deleted import ENCODINGS
from .initial import isolated_rng
from .layer_terms import LayerTerms
from .model_options import model_options
from .sizes import Shape

POSITION_ENCODINGS = Registry("--position-encoding", deleted=ENCODINGS)
register_position_encoding = POSITION_ENCODINGS.register
#: Values of --extend-positions.
EXTENSIONS = ("hierarchical", "toeplitz")


class PositionEncoding(nn.Module):
    """Base class of position encodings; its hooks do nothing.

    Args:
        shape: what the encoding is built for.

    Keyword-only arguments of a subclass are its options: annotated as
    ``name: Annotated[type, "help"] = default`` they become flags and configuration keys.
    """

    #: Terms summed in a score, whose scale is 1/√(score_terms·D): for TUPE 2, for DeBERTa 3.
    score_terms = 1
    #: Whether the bias is only a product of vectors, without a part by distance.
    bias_is_product = False
    #: Whether it has no form for keys on the right, so that it is for decoders only.
    causal_only = False
    #: Whether --extend-positions toeplitz continues the bias by distance.
    continues_by_distance = False
    #: Whether encoders read texts beyond max_positions.
    any_length = False
    #: Whether position 0 is [CLS], with scores of its own and outside of any window.
    untie_cls = False
    #: How many earlier tokens `embed` reads for each token.
    context = 0
    #: Whether token embeddings are multiplied by √C before positions are added.
    scales_tokens = False
    #: Names of parameters with a row for each token of the dictionary.
    token_tables: tuple[str, ...] = ()

    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape

    @classmethod
    def token_scale(cls, width: int, given: float | None = None) -> float:
        """Factor of token embeddings of this width: the given one, or that of the encoding."""
        if given is not None:
            return given
        return math.sqrt(width) if cls.scales_tokens else 1.0

    def for_pass(
        self, length: int, device: torch.device, padding_mask: Tensor | None = None
    ) -> "PositionEncoding":
        """The encoding whose hooks the model calls in one forward pass.

        The model calls this before `embed`, in training and evaluation, but not in incremental
        decoding, where each step is a pass. An encoding that computes something for this pass
        alone returns a shallow copy of itself (`copy.copy`, which shares the parameters) with it,
        so that all hooks and activation checkpointing use the same.

        Args:
            length: tokens T of each sequence, padding included.
            device: of the tokens.
            padding_mask: B×T, True at padding at the end of each row, or None without padding;
                the rows are in the order in which `rotate` gets them.
        """
        return self

    def check_decoding(self) -> None:
        """Check that the keys that incremental decoding stores do not change with the length.

        Raises:
            ConfigurationError: they do.
        """

    def embed(
        self,
        x: Tensor,
        tokens: Tensor | None = None,
        padding_mask: Tensor | None = None,
        start: int = 0,
    ) -> Tensor:
        """Positions that enter the input.

        Args:
            x: token embeddings, B×T×C.
            tokens: their ids, B×T, where known.
            padding_mask: B×T, True at padding, or None without padding.
            start: position of the first token.

        Returns:
            B×T×C.
        """
        return x

    def rotate(
        self, q: Tensor, k: Tensor, v: Tensor, start: int = 0
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Positions that act on queries and keys, and perhaps values, before they are cached.

        Args:
            q: B×H×T×D, at positions start, ..., start + T − 1.
            k: B×H×T×D, at the same positions.
            v: as k.
            start: position of the first token (not 0 in incremental decoding).
        """
        return q, k, v

    def for_tokens(self, positions: Tensor, dtype: torch.dtype) -> "PositionEncoding | None":
        """The encoding whose `rotate` gets packed tokens, 1×H×N×D of this dtype, at N positions.

        None where the encoding, or its terms in the layers, need B×H×T×D.
        """
        needs_cells = self.uses("rotate") or self.uses("build_layer_terms")
        return None if needs_cells else self

    def attention_bias(self, queries: int, keys: int, start: int = 0) -> AttentionBias | None:
        """What positions add to the scores, computed once per forward pass for all layers.

        Args:
            queries: number of queries T, at positions start, ..., start + T − 1 < S.
            keys: number of keys S, at positions 0, ..., S - 1.
            start: position of the first query.

        Returns:
            The term already scaled, or None where the encoding has none.
        """
        return None

    def at(self, layer: int) -> "PositionEncoding":
        """The encoding whose bias and rotation act in one layer.

        Layers that get the same object and the same window share a bias, which is computed once
        per forward pass. An encoding that differs by layer returns one of its submodules;
        `shape.window_at(layer)` is its window or None.

        Args:
            layer: index of the layer, from 0.
        """
        return self

    def build_layer_terms(self) -> LayerTerms | None:
        """The module that one attention layer owns; called once per layer, or None."""
        return None

    def position_tables(self) -> dict[str, int]:
        """Parameters with a row per position, and the row of the first position that has one.

        They limit the length to the trained one, unless --extend-positions extends them.
        """
        return {}

    def before_lm_head(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """Positions that enter between the last layer and the LM head.

        Args:
            x: B×T×C, or M×C of the tokens that are read.
            positions: of the tokens that are read, M; None: all, at positions 0, ..., T − 1.

        Returns:
            The shape of x.
        """
        return x

    @classmethod
    def options(cls) -> tuple[Option, ...]:
        """The encoding's flags, read from the keyword-only arguments of its constructor."""
        return declared_options(cls)

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """The encoding's options by name, with their default values."""
        return {option.name: option.default for option in cls.options()}

    @classmethod
    def recorded(cls, options: dict[str, Any], max_positions: int) -> dict[str, Any]:
        """The options as checkpoints keep them, with those that follow from the length.

        Args:
            options: of this encoding, by name.
            max_positions: of the model that is trained or loaded.
        """
        return options

    @classmethod
    def uses(cls, hook: str) -> bool:
        """Whether this encoding overrides the hook of that name."""
        return getattr(cls, hook) is not getattr(PositionEncoding, hook)


def check_at_least(flag: str, value: float, least: float) -> None:
    """Check that an option is a finite number of at least `least`."""
    if not least <= value < math.inf:
        raise ConfigurationError(f"{flag} must be at least {least}, but is {value}.")


def build_position_encoding(
    name: str,
    embed_dim: int,
    num_heads: int,
    max_positions: int,
    bidirectional: bool = True,
    vocab_size: int | None = None,
    num_layers: int = 1,
    **options: Any,
) -> PositionEncoding:
    """Build the encoding registered under ``name``.

    The sizes are those of `Shape`. `options` are those of `Shape`, which every encoding has, and
    those of this encoding.

    Raises:
        ConfigurationError: unknown name, heads that do not divide the width, or a bad option.
    """
    cls = POSITION_ENCODINGS[name]
    if num_heads < 1 or embed_dim % num_heads:
        raise ConfigurationError(
            f"the number of attention heads must divide the model width, but {num_heads} heads "
            f"do not divide {embed_dim}."
        )
    if bidirectional and cls.causal_only:
        raise ConfigurationError(
            f"--position-encoding {name} is for decoders only, because it is undefined for keys "
            "on the right: use it in tupe_transformer_lm, or choose another encoding."
        )
    shared = {
        each.name: options.pop(each.name) for each in model_options() if each.name in options
    }
    shape = Shape(
        embed_dim,
        num_heads,
        max_positions,
        bidirectional,
        vocab_size,
        num_layers,
        **shared,
    )
    check_extension(name, shape.extend_positions)
    for option in cls.options():
        option.check(options.get(option.name))
    with isolated_rng():
        return cls(shape, **options)


def check_extension(name: str, extension: str | None) -> None:
    """Check that --extend-positions is known, and that this encoding has what it extends."""
    if extension not in (None, *EXTENSIONS):
        raise ConfigurationError(
            f"--extend-positions is {extension!r}, but must be one of: {', '.join(EXTENSIONS)}."
        )
    if extension == "toeplitz" and not POSITION_ENCODINGS[name].continues_by_distance:
        able = [other for other, cls in POSITION_ENCODINGS.items() if cls.continues_by_distance]
        raise ConfigurationError(
            "--extend-positions toeplitz is only for --position-encoding "
            f"{' and '.join(able)}, but the encoding is {name!r}."
        )


def known_options() -> dict[str, Option]:
    """Options of all registered encodings by name.

    Encodings that share an option share its type and help; their defaults may differ.

    Raises:
        TypeError: two encodings declare one name with different types or help.
    """
    merged: dict[str, Option] = {}
    for encoding, cls in POSITION_ENCODINGS.items():
        for option in cls.options():
            other = merged.setdefault(option.name, option)
            if other != option._replace(default=other.default):
                raise TypeError(f"{encoding} declares {option.flag} unlike another encoding.")
    return merged
