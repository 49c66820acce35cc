"""`optimize`: encoders of transformers without padding, by the attention of this package."""

import copy
import warnings
from typing import Any, TypeVar

import transformers
from torch import nn

from ..base.errors import ConfigurationError, UsageError
from ..kernels.linear import FasterLinear, faster_products
from .optimized import Hooks
from .optimized_kinds import DebertaHooks, ModernBertHooks
from .precision import PRECISIONS, convert

T = TypeVar("T")
#: The hooks of each class of transformers.
KINDS: dict[type, type[Hooks]] = {
    transformers.BertModel: Hooks,
    transformers.RobertaModel: Hooks,
    transformers.XLMRobertaModel: Hooks,
    transformers.CamembertModel: Hooks,
    transformers.DebertaV2Model: DebertaHooks,
    transformers.ModernBertModel: ModernBertHooks,
}
#: The end of the names of heads that read vectors at padding.
ANSWERS = "ForQuestionAnswering"


def optimize(model: T, precision: str = "fp32", inplace: bool = False) -> T:
    """Let the encoders in a model compute faster, with the same modules and interface.

    The layers of each `BertModel`, `RobertaModel`, `XLMRobertaModel`, `CamembertModel`,
    `DebertaV2Model` and `ModernBertModel` compute without padding, by the attention of this
    package, and for DeBERTa without tensors of T×T×C. All modules stay, and are called. With
    "fp32", parameters are shared with `model`, names in the state dict do not change, and the
    result can be trained and saved as before. If padding is on the right, features at padding
    are 0.

        >>> model = optimize(SentenceTransformer("all-MiniLM-L6-v2"))

    Args:
        model: an `nn.Module`, such as a model of transformers with any head, a
            `SentenceTransformer` or a `CrossEncoder`; or a pipeline of transformers.
        precision: of the layers. "fp32" keeps that of the model; outputs are equal within 1e-5.
            "bf16" and "int8" are for inference and copy the layers; see `precision.convert`.
            Outputs stay in fp32.
        inplace: change `model` itself, and return it.

    Returns:
        The model, of the same class.

    Raises:
        UsageError: the precision is unknown, parameters are on the meta device, or `model` is
            not an `nn.Module`.

    Warns:
        UserWarning: for encoders that stay as they are, with the reason.
    """
    if precision not in PRECISIONS:
        raise ConfigurationError(
            f"precision is {precision!r}, but must be one of: {', '.join(PRECISIONS)}."
        )
    if not isinstance(model, nn.Module):
        inner = getattr(model, "model", None)
        if not isinstance(inner, nn.Module):
            raise UsageError(
                f"model is a {type(model).__name__}, but must be an nn.Module or a pipeline of "
                "transformers."
            )
        result: Any = model if inplace else copy.copy(model)
        result.model = optimize(inner, precision, inplace)
        return result
    tensors = [*model.parameters(), *model.buffers()]
    if any(each.is_meta for each in tensors):
        raise UsageError("model has parameters on the meta device: load their values first.")
    if not inplace:
        # What is found in the memo is not copied.
        model = copy.deepcopy(model, {id(each): each for each in tensors})
    changed: Any = model
    _install(changed, precision)
    return model


def _install(model: nn.Module, precision: str) -> None:
    """Let the encoders in a model compute by this package; it may be an encoder itself."""
    encoders, reasons = _encoders(model)
    if reasons or not encoders:
        stay = ", ".join(f"{name} ({reason})" for name, reason in reasons.items())
        known = ", ".join(each.__name__ for each in KINDS)
        warnings.warn(
            f"these encoders stay as they are: {stay}."
            if reasons
            else f"nothing to optimize in {type(model).__name__}: it has none of {known}.",
            stacklevel=3,
        )
    for parent in model.modules():
        # Its softmax over the positions of a text includes padding.
        answers = any(each.__name__.endswith(ANSWERS) for each in type(parent).__mro__)
        for child in parent.children():
            if answers and child in encoders:
                encoders[child].keeps_padding = True
    for encoder, hooks in encoders.items():
        convert(encoder, hooks, precision)
        _faster_products(encoder.get_submodule(hooks.layers))


def _encoders(model: nn.Module) -> tuple[dict[nn.Module, Hooks], dict[str, str]]:
    """The hooks of each encoder, and the reasons why others stay as they are, by name."""
    encoders: dict[nn.Module, Hooks] = {}
    reasons: dict[str, str] = {}
    for name, module in model.named_modules():
        # Exactly such a class, because a subclass may compute something else.
        kind = KINDS.get(type(module))
        if kind is None:
            continue
        if hooks := kind.of(module):
            encoders[module] = hooks
            continue
        parent = model.get_submodule(name.rpartition(".")[0])
        reason = kind.why_not(module) or _read_padding(parent)
        if not reason:
            try:
                encoders[module] = kind(module)
                encoders[module].install(module)
            except ConfigurationError as error:
                reason = str(error).rstrip(".")
        if reason:
            reasons[name or type(module).__name__] = reason
    return encoders, reasons


def _read_padding(parent: nn.Module) -> str:
    """Why an encoder is kept whose parent reads features at padding, or an empty string."""
    # GLiNER with fuse_layers averages all layers over padding, too.
    return "layers_fuser reads vectors at padding" if hasattr(parent, "layers_fuser") else ""


def _faster_products(layers: nn.Module) -> None:
    """Let plain linear layers compute by what is fastest on this processor."""
    for module in layers.modules() if faster_products() else ():
        if type(module) is nn.Linear and "forward" not in module.__dict__:
            module.__class__ = FasterLinear
