"""What the tests of attention are parametrised over: encodings, and parameters that matter."""

import functools
from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
from torch import Tensor, nn

from tupe_fairseq.attention import (
    ATTENTION_BACKENDS,
    Backend,
    Feature,
    LayerPlan,
    Layout,
    Padding,
    Prepared,
    TupeMultiheadAttention,
)
from tupe_fairseq.attention.eager import Eager
from tupe_fairseq.position import (
    POSITION_ENCODINGS,
    PositionEncoding,
    build_position_encoding,
)
from tupe_fairseq.transformer.config import StackConfig
from tupe_fairseq.transformer.stack import TransformerStack

#: Few buckets, so that short sentences reach the logarithmic ones and the last.
BUCKETS = {"num_buckets": 8, "max_distance": 6}
#: Few trained positions, so that short sentences go beyond.
TOEPLITZ = {"extend_positions": "toeplitz", "trained_positions": 5}
TOEPLITZ |= {"toeplitz_far": 2, "toeplitz_slope": 0.5}
DEBERTA_V3 = {"relative_clip": 5, "deberta_buckets": 4, "deberta_released": True}
OPTIONS = {
    "mpnet": BUCKETS,
    "t5": BUCKETS,
    "tupe_r": BUCKETS,
    "cnn": {"cnn_kernel": 3, "cnn_groups": 4},
    "deberta": {"relative_clip": 3},
    "shaw": {"relative_clip": 2},
    "fire": {"fire_width": 4, "fire_threshold": 1 << 12},
    # Without random positions in training.
    "cape": {"cape_global_shift": 0.0, "cape_local_shift": 0.0, "cape_scale": 1.0},
    "shape": {"shape_shifts": 0},
    "xpos": {"bidirectional": False, "xpos_scale_base": 16},
}
#: The encodings that encoders take.
IN_ENCODERS = [name for name, cls in POSITION_ENCODINGS.items() if not cls.causal_only]

#: Those that every machine has; `triton` has tests of its own, in its slow interpreter.
BACKENDS = [name for name in ATTENTION_BACKENDS if name != "triton"]

#: The encodings of the paper; all have loops in tests/reference.
PAPER = ("none", "learned", "t5", "tupe_a", "tupe_r")
VARIANTS = {
    "t5-one_sided": ("t5", {"bidirectional": False, **BUCKETS}),
    "tupe_a-tie_cls": ("tupe_a", {"tie_cls": True}),
    "tupe_r-tie_cls": ("tupe_r", {"tie_cls": True, **BUCKETS}),
    "tupe_r-one_sided": ("tupe_r", {"bidirectional": False, **BUCKETS}),
    "tupe_a-toeplitz": ("tupe_a", TOEPLITZ),
    "tupe_r-toeplitz": ("tupe_r", {**TOEPLITZ, **BUCKETS}),
    "tupe_r-toeplitz-tie_cls": ("tupe_r", {"tie_cls": True, **TOEPLITZ, **BUCKETS}),
}
#: Of the other encodings: options, and clips of which one lets no distance but 0 and 1 apart.
OTHER_VARIANTS = {
    "rope-values": ("rope", {"rope_values": True, "rope_theta": 100.0}),
    "pope-slow": ("pope", {"rope_theta": 100.0}),
    "rope-fraction": ("rope", {"rope_fraction": 0.5}),
    "rope-halves": ("rope", {"rope_halves": True, "rope_fraction": 0.5, "rope_values": True}),
    "rope-proportional": ("rope", {"rope_fraction": 0.5, "rope_proportional": True}),
    "rope-linear": ("rope", {"rope_scaling": "linear", "rope_scaling_factor": 2.5}),
    "shaw-narrow": ("shaw", {"relative_clip": 1}),
    "shaw-wide": ("shaw", {"relative_clip": 9}),
    "shaw-one_sided": ("shaw", {"relative_clip": 2, "bidirectional": False}),
    "shaw-long": ("shaw", {"relative_clip": 40}),
    "deberta-narrow": ("deberta", {"relative_clip": 1}),
    "deberta-wide": ("deberta", {"relative_clip": 9}),
    "deberta-long": ("deberta", {"relative_clip": 40}),
    "deberta-v3": ("deberta", {**DEBERTA_V3, "deberta_share": True, "deberta_norm": True}),
    "deberta-own": ("deberta", DEBERTA_V3),
    "deberta-c2p": ("deberta", {"relative_clip": 3, "deberta_terms": "c2p"}),
    "deberta-p2c": ("deberta", {**DEBERTA_V3, "deberta_terms": "p2c", "deberta_share": True}),
    "deberta-no-terms": ("deberta", {**DEBERTA_V3, "deberta_terms": "none"}),
    "deberta-paper-buckets": ("deberta", {**DEBERTA_V3, "deberta_released": False}),
    "sandwich-narrow": ("sandwich", {"sandwich_width": 4}),
    # From position 6 on, the score depends on more than the distance: w is 0.13.
    "fire-long": ("fire", {"fire_width": 4, "fire_threshold": 40}),
}
#: Test id -> registered name and arguments: everything in the registry, and the variants.
ENCODINGS = (
    {name: (name, OPTIONS.get(name, {})) for name in POSITION_ENCODINGS}
    | VARIANTS
    | OTHER_VARIANTS
)

EMBED_DIM = 12
NUM_HEADS = 3
VOCAB_SIZE = 11


def build(
    case: str,
    max_positions: int,
    dtype: torch.dtype = torch.float32,
    embed_dim: int = EMBED_DIM,
    num_heads: int = NUM_HEADS,
    **more,
) -> tuple[PositionEncoding, TupeMultiheadAttention]:
    """An encoding and an attention over it, with parameters large enough to bend the softmax.

    `more` are options beside those of the case.
    """
    name, options = ENCODINGS[case]
    options = {"vocab_size": VOCAB_SIZE, **options, **more}
    encoding = build_position_encoding(name, embed_dim, num_heads, max_positions, **options)
    return enlarged(encoding, 1).to(dtype), enlarged(attention_of(encoding), 2).to(dtype)


def attention_of(encoding: PositionEncoding, dropout: float = 0.0) -> TupeMultiheadAttention:
    seen = encoding.at(0)
    shape = encoding.shape
    return TupeMultiheadAttention(
        shape.embed_dim, shape.num_heads, dropout, seen.score_terms, seen.build_layer_terms()
    )


def encoder_of(
    name: str,
    length: int,
    width: int = EMBED_DIM,
    heads: int = NUM_HEADS,
    options: dict | None = None,
    num_layers: int = 2,
    **arguments,
) -> TransformerStack:
    """An encoder without dropout, unless the arguments say otherwise."""
    sizes = {"vocab_size": VOCAB_SIZE, "num_layers": num_layers}
    options = {**OPTIONS.get(name, {}), **sizes, **(options or {})}
    encoding = build_position_encoding(name, width, heads, length, **options)
    dropouts = {"dropout": 0.0, "attention_dropout": 0.0}
    return TransformerStack(encoding, StackConfig(num_layers, 16, **dropouts | arguments))


def enlarged(module: nn.Module, seed: int) -> nn.Module:
    """Parameters from N(0, 0.5²): at the usual initialisation attention is all but uniform."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5, generator=generator)
    return module


def served(
    backends: Iterable[str], cases: Iterable[str], *needs: Feature, **more
) -> list[tuple[str, str]]:
    """The pairs of a backend and a case, with more options, that it does not refuse.

    `needs` are features that every layer requires.
    """
    return [
        (backend, case)
        for case in cases
        for backend in backends
        if not ATTENTION_BACKENDS[backend].unsupported(_required(case, **more) | {*needs})
    ]


@functools.cache
def _required(case: str, **more) -> set[Feature]:
    encoding, attention = build(case, 9, **more)
    return {*LayerPlan.of(encoding.at(0), attention.layer_terms).needs}


def prepared_for(
    encoding: PositionEncoding,
    attention: TupeMultiheadAttention,
    x: Tensor,
    layout: Layout,
    window: int | None = None,
    layer: int = 0,
    **how,
) -> Prepared:
    """What one layer reads besides x; `how` goes to `LayerPlan.prepare`."""
    seen = encoding.at(layer)
    return LayerPlan.of(seen, attention.layer_terms, window).prepare(seen, x, layout, **how)


def normal(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def words(x: Tensor) -> Tensor:
    """Ids for encodings that read them, B×T: the same word at a position in every sentence."""
    return (7 * torch.arange(x.size(1), device=x.device) % VOCAB_SIZE).expand(x.shape[:2])


def padding_mask(length: int, *padded: int) -> Tensor:
    """B×T: the last padded[b] words of sentence b are padding."""
    return torch.stack([torch.arange(length) >= length - n for n in padded])


def run(
    encoding: PositionEncoding,
    attention: TupeMultiheadAttention,
    x: Tensor,
    padding: Tensor | None = None,
    packed: bool = False,
    backend: str | Backend = "auto",
    **how,
) -> Tensor:
    """Words through positions and attention.

    Args:
        encoding: the position encoding.
        attention: built over it.
        x: B×T×C.
        padding: B×T, or None.
        packed: padding is taken out where that saves time, as encoders do; 0 at padding.
        backend: a registered name, or a backend that takes the place of `eager`.
        how: for `LayerPlan.prepare`.
    """
    x = encoding.embed(x, words(x), padding)
    size = x.shape[:2]
    is_named = isinstance(backend, str)
    layout = Layout.of(Padding.read(padding), *size) if packed else Layout(*size, padding)
    x = layout.pack(x)
    how["backend"] = backend if is_named else "eager"
    prepared = prepared_for(encoding, attention, x, layout, **how)
    out = attention(x, prepared if is_named else replace(prepared, backend=backend))
    out = layout.unpack(out)
    return out * ~padding[:, :, None] if packed and padding is not None else out


class Weighing(Eager):
    """`eager` with other weights than the softmax of the scores, where `changed` gives them."""

    def __init__(self, changed: Callable[[Tensor], Tensor] = lambda scores: scores):
        self.changed = changed

    def weights(self, scores: Tensor, dtype: torch.dtype) -> Tensor:
        self.last = super().weights(self.changed(scores), dtype)
        return self.last


def run_with_weights(*given, **how) -> tuple[Tensor, Tensor]:
    """As `run` with `eager`; also returns the attention weights, B×H×T×S."""
    backend = Weighing()
    return run(*given, backend=backend, **how), backend.last


def run_seeing(
    visible: Tensor,
    encoding: PositionEncoding,
    attention: TupeMultiheadAttention,
    x: Tensor,
    padding: Tensor | None = None,
) -> Tensor:
    """The output where each query sees the keys of its row of `visible`, T×S.

    Each query is computed by itself with `eager`, in a batch in which all other keys are padding.
    """
    x, length = encoding.embed(x, words(x), padding), x.size(1)
    hidden = (~visible).repeat(len(x), 1)
    if padding is not None:
        hidden = hidden | padding.repeat_interleave(length, 0)
    every = x.repeat_interleave(length, 0)
    layout = Layout(len(every), length, hidden)
    out = attention(every, prepared_for(encoding, attention, every, layout, backend="eager"))
    return out.unflatten(0, (-1, length)).diagonal(dim1=1, dim2=2).mT


def gradients(
    output: Tensor, x: Tensor, encoding: nn.Module, attention: nn.Module
) -> dict[str, Tensor]:
    """Gradients of a fixed weighted sum of the output, by name; zero where nothing depends."""
    named = {
        "x": x,
        **{f"encoding.{name}": p for name, p in encoding.named_parameters()},
        **{f"attention.{name}": p for name, p in attention.named_parameters()},
    }
    loss_weights = normal(*output.shape, seed=3).to(output)
    found = torch.autograd.grad(
        output, list(named.values()), loss_weights, allow_unused=True, materialize_grads=True
    )
    return dict(zip(named, found, strict=True))
