"""What each layer requires of attention, and what layers share in one forward pass."""

import functools
import logging
from collections.abc import Collection
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..base.errors import BackendError
from ..position import LayerTerms, PositionEncoding
from ..position.bias import AttentionBias, Visible
from ..position.dtypes import HALF, without_autocast
from .backend import ATTENTION_BACKENDS, Backend, Feature, Prepared
from .layout import Layout

logger = logging.getLogger(__name__)

#: The backends that "auto" tries on each type of device, in this order. `eager`, the last,
#: supports all features.
AUTO = {"cpu": ("blocked", "sdpa", "eager"), "cuda": ("flash", "sdpa", "eager")}
AUTO_ELSEWHERE = ("sdpa", "eager")
#: What it tries first on GPUs where positions add to the scores, in training in half precision.
#: Its kernels save most in the backward pass; in fp32 they have no tensor cores.
AUTO_IN_TRAINING = "triton"
#: Tokens from which "auto" puts positions into vectors on GPUs: a dense bias took 0.90 of the time
#: of `flash` with 512 tokens, and 1.46 with 4,096 (examples/study/speed).
FLASH_FROM = 1024
#: Features for which incremental decoding uses `eager`: with one query, no T×T tensor is avoided.
DECODED_EAGERLY = {Feature.RELATIVE}


@dataclass(frozen=True)
class LayerPlan:
    """What one layer does with positions, decided when the model is built.

    Attributes:
        first: the first layer that sees the same of positions; their forward passes share it.
        window: largest distance at which tokens attend to each other, or None.
        needs: what the layer requires of a backend, in every forward pass.
        chosen: the backend of each kind of forward pass, chosen in the first of its kind.
    """

    first: int
    window: int | None
    needs: frozenset[Feature]
    chosen: dict[tuple[str, str, bool, bool, bool, bool], Backend] = field(
        default_factory=dict, compare=False
    )

    @classmethod
    def of(
        cls,
        encoding: PositionEncoding,
        terms: LayerTerms | None = None,
        window: int | None = None,
        first: int = 0,
    ) -> "LayerPlan":
        """The plan of a layer.

        Args:
            encoding: as the layer sees it.
            terms: the encoding's terms of the layer.
            window: see the attribute.
            first: see the attribute.
        """
        is_relative = terms is not None and terms.uses("relative")
        required = {
            Feature.RELATIVE: is_relative,
            Feature.RELATIVE_VALUES: terms is not None and terms.has_values,
            Feature.DISTANCE: encoding.uses("attention_bias") and not encoding.bias_is_product,
            Feature.WINDOW: window is not None,
        }
        return cls(first, window, frozenset(each for each in required if required[each]))

    def prepare(
        self,
        encoding: PositionEncoding,
        x: Tensor,
        layout: Layout | None = None,
        backend: str = "auto",
        causal: bool = False,
        compiled: bool = False,
    ) -> Prepared:
        """Choose a backend and compute what positions add to the scores of one forward pass.

        Args:
            encoding: the position encoding, as the layer sees it.
            x: input of the layers, B×T×C, or N×C where the layout has taken padding out.
            layout: the tokens of the batch, or None for B×T tokens without padding.
            backend: a registered name, or "auto" for the first in `AUTO` that has all features.
            causal: whether later tokens are hidden.
            compiled: whether the layers are compiled.

        Raises:
            BackendError: the backend is unknown, does not support this encoding, or cannot run
                here.
        """
        if layout is None:
            layout = Layout(x.size(0), x.size(1))
        compiled = compiled or torch.compiler.is_compiling()
        chosen = self.choose(backend, encoding, x, layout.length, causal, compiled)
        bias = self.bias(encoding, layout.length, x.device, causal)
        encoding, layout = _packed(chosen, encoding, x, layout, bias is not None)
        with without_autocast(x.device.type):
            dtype = dtype_of_queries(x)
            inputs = chosen.prepare(bias, layout, encoding.shape.num_heads, dtype)
        return Prepared(chosen, layout, inputs, encoding)

    def takes_packed(
        self,
        encoding: PositionEncoding,
        x: Tensor,
        backend: str = "auto",
        causal: bool = False,
        compiled: bool = False,
    ) -> bool:
        """Whether the backend takes the packed tokens of x, B×T×C; arguments as in `prepare`."""
        length = x.size(1)
        chosen = self.choose(backend, encoding, x, length, causal, compiled)
        visible = Visible(causal, self.window, encoding.untie_cls)
        has_bias = encoding.uses("attention_bias") or visible.hides(length)
        return _takes_packed(chosen, encoding, x, has_bias)

    def prepare_step(
        self,
        encoding: PositionEncoding,
        x: Tensor,
        position: int,
        bias: AttentionBias | None,
        backend: str,
    ) -> Prepared:
        """As `prepare`, for one token of each hypothesis in incremental decoding.

        Args:
            encoding: as the layer sees it.
            x: input of the first layer, B×1×C.
            position: of the token.
            bias: what `bias` returned for this length or a longer one.
            backend: a registered name, or "auto".
        """
        chosen = choose_backend(
            "eager" if self.needs & DECODED_EAGERLY else backend, {Feature.DECODER}, x.device.type
        )
        layout = Layout(len(x), position + 1, other_queries=True)
        row = None if bias is None else bias.row(position)
        return Prepared(
            chosen,
            layout,
            chosen.prepare(row, layout, encoding.shape.num_heads, dtype_of_queries(x)),
            encoding,
            start=position,
        )

    def choose(
        self,
        name: str,
        encoding: PositionEncoding,
        x: Tensor,
        length: int,
        causal: bool = False,
        compiled: bool = False,
    ) -> Backend:
        """The backend of a forward pass over `length` tokens; arguments as in `prepare`.

        Raises:
            BackendError: it does not support this encoding, or cannot run on this device.
        """
        device = x.device.type
        on_gpu = device == "cuda"
        is_short = on_gpu and length < FLASH_FROM
        trains_in_half = on_gpu and torch.is_grad_enabled() and dtype_of_queries(x) in HALF
        kind = (name, device, causal, compiled, is_short, trains_in_half)
        if kind not in self.chosen:
            features = self.features(causal, compiled)
            has_bias = encoding.uses("attention_bias")
            adds_to_scores = has_bias or Feature.RELATIVE in features
            first = (AUTO_IN_TRAINING,) if trains_in_half and adds_to_scores else ()
            if name == "auto" and is_short and has_bias:
                # The backends with a dense bias have this feature.
                features |= {Feature.DISTANCE}
            backend = choose_backend(name, features, device, first)
            if reason := backend.unavailable(device):
                raise _unusable(name, reason)
            if not torch.compiler.is_compiling():
                _log_choice(name, backend.name, type(encoding).__name__, device)
            self.chosen[kind] = backend
        return self.chosen[kind]

    def features(self, causal: bool, compiled: bool) -> frozenset[Feature]:
        """What a forward pass requires of a backend."""
        features = self.needs
        if causal:
            features |= {Feature.DECODER}
        if compiled:
            features |= {Feature.COMPILED}
        return features

    def bias(
        self, encoding: PositionEncoding, length: int, device: torch.device, causal: bool = False
    ) -> AttentionBias | None:
        """What positions add to the scores of T tokens, and which keys they see.

        It is computed once for all layers, so its rounding error would be in all of them: without
        autocast. The arguments are those of `prepare`; `length` is T.
        """
        with without_autocast(device.type):
            bias = encoding.attention_bias(length, length)
            visible = Visible(causal, self.window, encoding.untie_cls)
            if not visible.hides(length):
                return bias
            if bias is None:
                zeros = torch.zeros(1, 2 * length - 1, device=device)
                by_distance = zeros.expand(encoding.shape.num_heads, -1)
                bias = AttentionBias(length, by_distance=by_distance)
            return bias.hiding(visible)


def _packed(
    backend: Backend, encoding: PositionEncoding, x: Tensor, layout: Layout, has_bias: bool
) -> tuple[PositionEncoding, Layout]:
    """Those of packed tokens, where both backend and encoding take them."""
    if layout.positions is None or not _takes_packed(backend, encoding, x, has_bias):
        return encoding, layout
    at_tokens = encoding.for_tokens(layout.positions, dtype_of_queries(x))
    return (encoding, layout) if at_tokens is None else (at_tokens, layout.packed())


def _takes_packed(backend: Backend, encoding: PositionEncoding, x: Tensor, has_bias: bool) -> bool:
    width = encoding.shape.head_dim
    return backend.takes_packed(has_bias, width, dtype_of_queries(x), x.device.type)


def choose_backend(
    name: str, features: Collection[Feature], device: str = "cpu", first: tuple[str, ...] = ()
) -> Backend:
    """The backend of that name, or for "auto" the first that has all features and can run here.

    "auto" tries those of `AUTO`, after the backends in `first`.

    Raises:
        BackendError: the backend is unknown, or does not support these features.
    """
    if name == "auto":
        names = (*first, *AUTO.get(device, AUTO_ELSEWHERE))
        candidates = (ATTENTION_BACKENDS[each] for each in names)
        supporting = (each for each in candidates if not each.unsupported(features))
        return next(each for each in supporting if not each.unavailable(device))
    chosen: Backend = ATTENTION_BACKENDS[name]
    if reason := chosen.unsupported(features):
        raise _unusable(name, reason)
    return chosen


def _unusable(name: str, reason: str) -> BackendError:
    return BackendError(f"--attention-backend is {name!r}, but {reason}; use auto or eager.")


@functools.cache
def _log_choice(asked: str, chosen: str, encoding: str, device: str) -> None:
    """Log each choice once."""
    logger.info(f"attention backend {chosen} ({asked}) for {encoding} on {device}")


def dtype_of_queries(x: Tensor) -> torch.dtype:
    """The dtype of queries projected from x: autocast turns fp32 into half precision."""
    device = x.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return x.dtype
