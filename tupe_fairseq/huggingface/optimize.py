"""`optimize`: encoders of transformers, computed by the attention of this package."""

import copy
import warnings
from typing import Any, TypeVar

import transformers
from torch import nn

from ..base.errors import ConfigurationError, UsageError
from .optimized import Optimized
from .optimized_bert import BertModel, CamembertModel, RobertaModel, XLMRobertaModel
from .optimized_deberta import DebertaV2Model
from .optimized_modernbert import ModernBertModel
from .precision import PRECISIONS, convert

T = TypeVar("T")
#: The optimized class of each class of transformers, whose name it has.
CLASSES: dict[type, type[Optimized]] = {
    getattr(transformers, each.__name__): each
    for each in (
        BertModel,
        RobertaModel,
        XLMRobertaModel,
        CamembertModel,
        DebertaV2Model,
        ModernBertModel,
    )
}


def optimize(model: T, precision: str = "fp32", inplace: bool = False) -> T:
    """Replace the encoders in a model by faster ones with the same parameters and interface.

    The layers of each `BertModel`, `RobertaModel`, `XLMRobertaModel`, `CamembertModel`,
    `DebertaV2Model` and `ModernBertModel` are computed by this package: without padding, and for
    DeBERTa without tensors of T×T×C. Heads, pooling and tokenizers are kept. With "fp32",
    parameters are shared with `model`, names in the state dict do not change, and the result can
    be trained and saved as before. If padding is on the right, features at padding are 0.

        >>> model = optimize(SentenceTransformer("all-MiniLM-L6-v2"))

    Args:
        model: an `nn.Module`, such as a model of transformers with any head, a
            `SentenceTransformer` or a `CrossEncoder`; or a pipeline of transformers.
        precision: of the layers. "fp32" keeps that of the model; outputs are equal within 1e-5.
            "bf16" and "int8" are for inference and copy the layers; see `precision.convert`.
            Outputs stay in fp32.
        inplace: change `model` itself, and return it. If `model` is itself one of these encoders,
            use the returned model.

    Returns:
        The model, of the same class.

    Raises:
        UsageError: the precision is unknown, parameters are on the meta device, or `model` is
            not an `nn.Module`.

    Warns:
        UserWarning: for encoders that are not replaced, with the reason.
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
    return _replace(model, precision)


def _replace(model: Any, precision: str) -> Any:
    """The model with its encoders replaced; it may be an encoder itself."""
    replaced, reasons = _replacements(model)
    if reasons or not replaced:
        stay = ", ".join(f"{name} ({reason})" for name, reason in reasons.items())
        known = ", ".join(each.__name__ for each in CLASSES)
        warnings.warn(
            f"these encoders stay as they are: {stay}."
            if reasons
            else f"nothing to optimize in {type(model).__name__}: it has none of {known}.",
            stacklevel=3,
        )
    for parent in model.modules():
        # Its softmax over the positions of a text includes padding.
        answers = type(parent).__name__.endswith("ForQuestionAnswering")
        for name, child in parent.named_children():
            if child in replaced:
                replaced[child].keeps_padding = answers
                setattr(parent, name, replaced[child])
    for encoder in replaced.values():
        convert(encoder, precision)
    return replaced.get(model, model)


def _replacements(model: nn.Module) -> tuple[dict[nn.Module, Any], dict[str, str]]:
    """The optimized encoder of each encoder, and the reasons why others are kept, by name."""
    replaced: dict[nn.Module, Any] = {}
    reasons: dict[str, str] = {}
    for name, module in model.named_modules():
        # Exactly such a class, because a subclass may compute something else.
        kind = CLASSES.get(type(module))
        if isinstance(module, Optimized):
            replaced[module] = module
        elif kind is not None:
            parent = model.get_submodule(name.rpartition(".")[0])
            reason = kind.why_not(module) or _changed(module, kind) or _read_padding(parent)
            if not reason:
                try:
                    replaced[module] = kind.replacing(module)
                except ConfigurationError as error:
                    reason = str(error).rstrip(".")
            if reason:
                reasons[name or type(module).__name__] = reason
    return replaced, reasons


def _changed(encoder: nn.Module, kind: type[Optimized]) -> str:
    """Why an encoder is kept in which a module that is not called has a hook, or an empty string.

    The linear layers and norms of its layers are called.
    """
    called = tuple(f".{'.'.join(path).lstrip('.')}." for path in kind.parts.values())
    for name, module in encoder.get_submodule(kind.body).named_modules():
        hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
        # transformers 5 collects outputs by hooks of its own.
        own = [hook for hook in hooks if not str(hook.__module__).startswith("transformers.")]
        path = f".{name}."
        if (own or "forward" in module.__dict__) and not any(part in path for part in called):
            return f"{kind.body}{path.rstrip('.')} has a hook, or another forward"
    return ""


def _read_padding(parent: nn.Module) -> str:
    """Why an encoder is kept whose parent reads features at padding, or an empty string."""
    # GLiNER with fuse_layers averages all layers over padding, too.
    return "layers_fuser reads vectors at padding" if hasattr(parent, "layers_fuser") else ""
