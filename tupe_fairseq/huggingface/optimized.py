"""Hooks of an encoder of transformers: layers without padding, attention by this package.

    embeddings, B×T×C  --before-->  layers of the encoder, 1×N×C  --after-->  B×T×C

The hook before the layers takes padding out and prepares attention, which the layers hand to
their self-attention (`optimized_attention`). The hook after them puts padding back as zeros. All
modules are the encoder's own. Where one of them might read more than a token at a time, padding
stays, and where the hooks do not know what is asked for, transformers' code runs.
"""

from collections.abc import Callable, Container
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers.utils import ModelOutput

from ..attention import LayerPlan, Layout, Padding, Prepared
from ..base.errors import UsageError
from ..position.base import PositionEncoding, build_position_encoding
from . import optimized_attention
from .changes import by_token, changed, is_own

#: Arguments that change what layers compute, or what they return. Others are ignored, as
#: transformers does.
UNSERVED = (
    "encoder_hidden_states",
    "encoder_attention_mask",
    "past_key_values",
    "output_attentions",
    "is_causal",
    "position_bias",
    "cache",
    "softcap",
    "query_states",
    "relative_pos",
)
#: What attention reads the probability of; it is not called.
DROPOUTS = (nn.Dropout, nn.Identity)
CHANGED = "has a hook, or another forward"


class Hooks:
    """The hooks of one encoder; they keep nothing of a pass.

    Args:
        model: the encoder.

    Raises:
        ConfigurationError: a number of the configuration is not supported.
    """

    #: The part of the encoder that has the hooks, and its layers.
    owner: ClassVar = "encoder"
    layers: ClassVar = "encoder.layer"
    #: What hands the prepared attention on in a layer; the last one computes attention.
    path: ClassVar[tuple[str, ...]] = ("attention", "self")
    #: The parts that compute in another precision.
    parts: ClassVar[tuple[str, ...]] = ("encoder",)

    def __init__(self, model: Any):
        self.config = model.config
        #: Whether vectors at padding are computed as in transformers, since a head reads them.
        self.keeps_padding = False
        self.precision = "fp32"
        self.encoding = self.build_encoding()
        self.plan = LayerPlan.of(self.encoding, self.encoding.build_layer_terms())

    @staticmethod
    def unsupported(model: Any) -> str:
        """Which part of the configuration is not supported, or an empty string."""
        config = model.config
        if config.is_decoder or config.add_cross_attention:
            return "it is a decoder"
        if (kind := getattr(config, "position_embedding_type", "absolute")) != "absolute":
            return f"position_embedding_type is {kind!r}"
        return ""

    @classmethod
    def of(cls, model: nn.Module) -> "Hooks | None":
        """The hooks that have been installed in an encoder, or None."""
        hooks = model.get_submodule(cls.owner)._forward_pre_hooks.values()
        owners = (getattr(hook, "__self__", None) for hook in hooks)
        return next((each for each in owners if isinstance(each, Hooks)), None)

    @classmethod
    def why_not(cls, model: Any) -> str:
        """Why an encoder cannot have the hooks, or an empty string."""
        if "forward" in model.__dict__:
            return "its forward has been replaced by another library"
        if reason := cls.unsupported(model):
            return reason
        if cls.owner and changed(model.get_submodule(cls.owner)):
            return f"{cls.owner} {CHANGED}"
        layers, heads = model.get_submodule(cls.layers), model.config.num_attention_heads
        why = cls.changed_in(layers, heads, optimized_attention.CLASSES)
        return f"{cls.layers}.{why}" if why else ""

    def install(self, model: nn.Module) -> None:
        """Register the hooks in an encoder, and exchange its self-attention."""
        owner = model.get_submodule(self.owner)
        owner.register_forward_pre_hook(self.before, with_kwargs=True)
        owner.register_forward_hook(self.after, with_kwargs=True)
        for layer in model.get_submodule(self.layers).children():
            optimized_attention.exchange(layer.get_submodule(".".join(self.path)))

    def ends(self, model: nn.Module) -> tuple[nn.Module, nn.Module]:
        """The modules that the layers' inputs and outputs go through."""
        return model.get_submodule(self.owner), model.get_submodule(self.owner)

    def refuse(self, *_: Any) -> None:
        """Raise a UsageError; a hook called before the state dict of converted layers is built."""
        raise UsageError(
            f"layers in {self.precision} are for inference and cannot be saved: save the model "
            "that was given to optimize."
        )

    def build_encoding(self, name: str = "none", **options: Any) -> PositionEncoding:
        """The encoding that attention computes; the embeddings add the positions of BERT."""
        config = self.config
        sizes = config.hidden_size, config.num_attention_heads, config.max_position_embeddings
        return build_position_encoding(name, *sizes, **options)

    def before(self, module: Any, args: Any, named: dict[str, Any]) -> Any:
        """What the layers get; None for what they are given."""
        mask = named.get("attention_mask")
        if len(args) != 1 or not self.serves(module.layer, named):
            return None
        x = args[0]
        if mask is None:
            hidden = None
        elif (hidden := hidden_keys(mask)) is None or hidden.shape != x.shape[:2]:
            return None
        layout = self.layout(module, x, hidden, self.wants_states(named))
        if layout is None:
            return None
        prepared = self.plan.prepare(self.encoding, x, layout)
        return (packed(layout, x),), {**named, "attention_mask": prepared}

    def after(self, module: Any, args: Any, named: dict[str, Any], out: Any) -> Any:
        """What the layers have returned, with padding."""
        prepared = named.get("attention_mask")
        return unpacked(prepared.layout, out) if isinstance(prepared, Prepared) else None

    def wants_states(self, named: dict[str, Any]) -> bool:
        """Whether hidden states are returned."""
        wanted = named.get("output_hidden_states")
        return bool(self.config.output_hidden_states if wanted is None else wanted)

    def serves(self, layers: nn.Module, named: dict[str, Any]) -> bool:
        """Whether the layers hand on what has been prepared, and nothing else is asked for."""
        if torch.compiler.is_compiling() or torch.jit.is_tracing():
            return False
        asked = [named.get(name) for name in UNSERVED]
        # In transformers 4, a mask of heads for each layer.
        asked += named.get("head_mask") or []
        if any(each is not None and each is not False for each in asked):
            return False
        if self.config.output_attentions or getattr(self.config, "chunk_size_feed_forward", 0):
            return False
        heads = self.config.num_attention_heads
        return not self.changed_in(layers, heads, optimized_attention.OURS)

    @classmethod
    def changed_in(cls, layers: nn.Module, heads: int, kinds: Container[type]) -> str:
        """What in the layers may not hand on what is prepared, or an empty string.

        Args:
            layers: the layers.
            heads: of each.
            kinds: of its self-attention.
        """
        each: Any
        for name, each in layers.named_children():
            module = each
            for part in (None, *cls.path):
                if part is not None:
                    name, module = f"{name}.{part}", module._modules[part]
                if changed(module):
                    return f"{name} {CHANGED}"
                if not is_own(type(module).__module__):
                    break
            if type(module) not in kinds:
                return f"{name} is a {type(module).__name__}, which is not transformers'"
            dropout = module._modules.get("dropout")
            if dropout is not None and (changed(dropout) or type(dropout) not in DROPOUTS):
                return f"{name}.dropout {CHANGED}"
            if getattr(module, "num_attention_heads", heads) != heads:
                return f"{name} has {module.num_attention_heads} heads"
        return ""

    def layout(
        self, module: nn.Module, x: Tensor, hidden: Tensor | None, wants_states: bool
    ) -> Layout | None:
        """Where the tokens are, or None where vectors at padding must be those of transformers.

        Args:
            module: what processes the tokens.
            x: B×T or B×T×C.
            hidden: B×T, True at padding; or None.
            wants_states: whether hidden states are returned.
        """
        batch, length = x.shape[:2]
        # Without values, nothing is known of padding.
        padding = None if hidden is None or hidden.is_meta else Padding.read(hidden)
        if padding is None:
            return Layout(batch, length)
        if self.keeps_padding or wants_states:
            return None
        if padding.leading or padding.scattered or not by_token(module):
            return Layout(batch, length, padding.mask)
        return Layout.of(padding, batch, length)


def hidden_keys(mask: Any) -> Tensor | None:
    """Which keys a mask of transformers hides, B×T; None if that is not the same for all queries.

    Args:
        mask: B×1×T×T or B×1×1×T, True at what is seen, or added to the scores.
    """
    if not isinstance(mask, Tensor) or mask.dim() != 4 or mask.size(1) != 1:
        return None
    first = mask[:, :, :1]
    if mask.is_meta or not torch.equal(first.expand_as(mask), mask):
        return None
    row = first[:, 0, 0]
    if row.dtype == torch.bool:
        return ~row
    if not row.is_floating_point():
        return None
    hidden = row <= torch.finfo(row.dtype).min
    return hidden if bool((hidden | (row == 0)).all()) else None


def packed(layout: Layout, x: Tensor) -> Tensor:
    """The tokens as one text: B×T×C -> 1×N×C, or x itself where padding stays."""
    return x if layout.batch_cells is None else layout.pack(x)[None]


def unpacked(layout: Layout, out: Any) -> Any:
    """What a module has returned for one text, 1×N×C each, as B×T×C with zeros at padding."""
    return out if layout.batch_cells is None else mapped(out, lambda x: layout.unpack(x[0]))


def mapped(out: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """What a module of transformers returns, or gets, with each tensor replaced."""
    if isinstance(out, Tensor):
        return function(out)
    if isinstance(out, tuple):
        return tuple(mapped(each, function) for each in out)
    if isinstance(out, ModelOutput):
        for name, value in list(out.items()):
            out[name] = mapped(value, function)
    return out
