"""What optimized encoders share: hooks that take padding out, and attention by this package.

    embeddings, B×T×C  --before-->  the layers, 1×N×C  --after-->  B×T×C

`Hooks.before` takes padding out and prepares attention; what it has prepared takes the place of
the attention mask, which transformers hands on to self-attention. Self-attention is made an
instance of a subclass of its class (`optimized_bert` and the others), which reads that.
`Hooks.after` puts padding back as zeros. All modules stay the user's, and are called.

Where a module may read more than a token at a time, padding stays. What the hooks do not know,
transformers' own code computes.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers.utils import ModelOutput

from ..attention import LayerPlan, Layout, Padding, Prepared
from ..base.errors import UsageError
from ..kernels.linear import project
from ..position.base import PositionEncoding, build_position_encoding
from ..position.relative import RelativeVectors
from .modules import by_token

#: The class here of each class of transformers whose modules compute in another way.
CLASSES: dict[type, type] = {}


class Hooks:
    """The hooks of one encoder; they keep nothing of a pass.

    Args:
        config: of the encoder.

    Raises:
        ConfigurationError: a number of the configuration is not supported.
    """

    #: The part of the encoder that has the hooks, and the parts that have the layers.
    owner: ClassVar = "encoder"
    parts: ClassVar[tuple[str, ...]] = ("encoder",)
    #: Arguments with which transformers' own code computes.
    unserved: ClassVar[tuple[str, ...]] = (
        "encoder_hidden_states",
        "past_key_values",
        "is_causal",
        "output_attentions",
        "output_hidden_states",
    )

    def __init__(self, config: Any):
        self.config = config
        #: Whether vectors at padding are those of transformers, since a head reads them.
        self.keeps_padding = False
        #: Whether a head reads the first vector of each text, which may be padding.
        self.reads_first = False
        self.precision = "fp32"
        #: The dtypes of layers and outputs, where they differ.
        self.inside: torch.dtype | None = None
        self.outside: torch.dtype | None = None
        with torch.random.fork_rng(devices=[]):
            # Encodings draw what they begin with.
            self.encoding = self.build_encoding()
        self.plan = LayerPlan.of(self.encoding, self.encoding.build_layer_terms())

    @staticmethod
    def unsupported(model: Any) -> str:
        """Which part of the configuration is not supported, or an empty string."""
        raise NotImplementedError

    @staticmethod
    def attention_of(layer: Any) -> Any:
        """The self-attention of a layer, or None."""
        return getattr(getattr(layer, "attention", None), "self", None)

    def build_encoding(self) -> PositionEncoding:
        """The encoding that attention computes."""
        return self.encoding_of("none")

    def encoding_of(self, name: str, **options: Any) -> PositionEncoding:
        """The encoding of this name, with the sizes of the configuration."""
        config = self.config
        return build_position_encoding(
            name,
            config.hidden_size,
            config.num_attention_heads,
            config.max_position_embeddings,
            **options,
        )

    def enter(self, module: Any, args: Any, named: dict[str, Any]) -> Any:
        """What the module gets."""
        given = self.before(module, args, named)
        if given is None and self.inside is not None:
            cast = self.mask_inside
            return tuple(map(cast, args)), {name: cast(value) for name, value in named.items()}
        return given

    def mask_inside(self, x: Any) -> Any:
        """A mask that transformers adds to scores, in the dtype of the layers."""
        if not (isinstance(x, Tensor) and x.dim() == 4 and x.is_floating_point()):
            return x
        assert self.inside is not None
        return x.float().clamp(min=torch.finfo(self.inside).min).to(self.inside)

    def before(self, module: Any, args: Any, named: dict[str, Any]) -> Any:
        """What the module gets, or None where transformers' own code computes."""
        raise NotImplementedError

    def after(self, module: Any, args: Any, named: dict[str, Any], out: Any) -> Any:
        """What the module has returned, with padding, and in the dtype of outputs."""
        layout = next((each.layout for each in prepared_in(named)), None)
        if self.outside is None and (layout is None or layout.batch_cells is None):
            return out
        return self._padded(out, layout)

    def _padded(self, out: Any, layout: Layout | None) -> Any:
        """What `after` returns: 1×N×C -> B×T×C, also in tuples and outputs of models."""
        if isinstance(out, Tensor):
            if layout is not None and layout.batch_cells is not None:
                out = layout.unpack(out[0])
            return out if self.outside is None else out.to(self.outside)
        if isinstance(out, tuple):
            return tuple(self._padded(each, layout) for each in out)
        if isinstance(out, ModelOutput):
            for name, value in list(out.items()):
                out[name] = self._padded(value, layout)
        return out

    def embedded(self, module: nn.Module, args: Any, out: Tensor) -> Tensor:
        """What embeddings have returned, in the dtype of the layers."""
        return out.to(self.inside)

    def leave(self, module: nn.Module, args: Any, out: Any) -> Any:
        """What the model has returned, and what was collected, in the dtype of outputs."""
        return self._padded(out, None)

    def refuse(self, *_: Any) -> None:
        """Raise a UsageError; a hook called before the state dict of converted layers is built."""
        raise UsageError(
            f"layers in {self.precision} are for inference and cannot be saved: save the model "
            "that was given to optimize."
        )

    def serves(self, layers: nn.ModuleList, named: dict[str, Any]) -> bool:
        """Whether the layers hand on what is prepared, and nothing else is asked for."""
        if torch.compiler.is_compiling() or torch.jit.is_tracing():
            return False
        asked = [named.get(name) for name in self.unserved]
        # In transformers 4, a mask of heads for each layer.
        asked += named.get("head_mask") or []
        if any(each is not None and each is not False for each in asked):
            return False
        for name in ("output_attentions", "output_hidden_states"):
            if named.get(name) is None and getattr(self.config, name):
                return False
        attentions = map(self.attention_of, layers)
        return all(isinstance(each, SelfAttention) and each.is_served() for each in attentions)

    def layout(self, module: nn.Module, x: Tensor, hidden: Tensor | None) -> Layout | None:
        """Where the tokens are, or None where vectors at padding must be those of transformers.

        Args:
            module: what processes the tokens.
            x: B×T or B×T×C.
            hidden: B×T, True at padding; or None.
        """
        batch, length = x.shape[:2]
        # Without values, nothing is known of padding.
        padding = None if hidden is None or hidden.is_meta else Padding.read(hidden)
        # In int8, a difference by rounding can become one of a whole step.
        alone = self.precision == "int8"
        if padding is None:
            return Layout(batch, length, alone=alone)
        if self.keeps_padding:
            return None
        alone &= not (padding.leading and self.reads_first)
        stays = padding.inside if alone else padding.scattered
        if stays or not by_token(module):
            return Layout(batch, length, padding.mask)
        return Layout.of(padding, batch, length, alone)


def packed(layout: Layout, x: Tensor) -> Tensor:
    """The tokens as one text: B×T×C -> 1×N×C, or x itself where padding stays."""
    return x if layout.batch_cells is None else layout.pack(x)[None]


def prepared_in(named: dict[str, Any]) -> list[Prepared]:
    """What `Hooks.before` has put among the arguments of a module."""
    mask = named.get("attention_mask")
    masks = mask.values() if isinstance(mask, dict) else (mask, named.get("relative_pos"))
    return [each for each in masks if isinstance(each, Prepared)]


class SelfAttention:
    """What the classes of self-attention here share."""

    #: Queries, keys and values.
    projections: ClassVar[tuple[str, ...]] = ()
    _modules: dict[str, Any]
    attention_head_size: int

    def scale(self, encoding: Any = None) -> float:
        """The factor of the queries."""
        return self.attention_head_size**-0.5

    def is_served(self) -> bool:
        """Whether all its modules are called that transformers calls."""
        return True

    def projected(self, x: Tensor, scale: float) -> list[Tensor]:
        """Scaled queries, keys and values: B×T×C each."""
        first, second, third = [self._modules[name] for name in self.projections]
        if type(first) is type(second) is type(third) is Third:
            return list(first.joined(x).chunk(3, -1))
        return [project(x, first) * scale, project(x, second), project(x, third)]


class Third(nn.Module):
    """One of three linear layers, of which self-attention computes one product.

    Args:
        joined: scaled queries, keys and values, C -> 3C.
        index: 0, 1 or 2.
        scale: of the queries.
    """

    def __init__(self, joined: nn.Module, index: int, scale: float):
        super().__init__()
        self.joined = joined
        self.index = index
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        """What the layer itself would return, without the scale."""
        third: Tensor = self.joined(x).chunk(3, -1)[self.index]
        return third if self.index else third / self.scale

    def __repr__(self) -> str:
        return f"a third of {self.joined!r}"


def attend(
    prepared: Prepared,
    qkv: list[Tensor],
    heads: int,
    p: float,
    relative: RelativeVectors | None = None,
) -> Tensor:
    """Attention of what has been projected: three of B×T×C or 1×N×C -> the same shape.

    Args:
        prepared: the layout and what the backend has prepared.
        qkv: scaled queries, keys and values.
        heads: H.
        p: probability of dropping an attention weight.
        relative: vectors by distance, or None.
    """
    layout = prepared.layout
    is_packed = layout.batch_cells is not None
    q, k, v = (layout.per_head(x[0] if is_packed else x, heads) for x in qkv)
    out = prepared.backend.attend(q, k, v, prepared, p, relative)
    # B×H×T×D -> B×T×C -> N×C
    out = layout.from_attention(out.transpose(1, 2).flatten(2))
    return out[None] if is_packed else out
