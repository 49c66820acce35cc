"""`optimize`: encoders of transformers without padding, by the attention of this package."""

import copy
import importlib
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import transformers
from torch import nn

from ..base.errors import ConfigurationError, UsageError
from ..kernels.linear import FasterLinear, faster_products
from .optimized import CLASSES, Hooks
from .optimized_bert import BertHooks
from .optimized_deberta import DebertaHooks
from .optimized_modernbert import ModernBertHooks
from .optimized_mpnet import MPNetHooks
from .precision import PRECISIONS, convert

T = TypeVar("T")
#: Gives an encoder its hooks, or its program: (encoder, hooks, whether padding is read) -> why it
#: stays, or an empty string.
Change = Callable[[Any, type[Hooks], bool], str]
#: Engines besides torch, and the modules that have them. They are in a room above this one, and
#: imported when they are asked for.
ENGINES = {"onnxruntime": "tupe_fairseq.convert.engine"}
#: The hooks of each class of transformers.
KINDS: dict[type, type[Hooks]] = {
    transformers.BertModel: BertHooks,
    transformers.RobertaModel: BertHooks,
    transformers.XLMRobertaModel: BertHooks,
    transformers.CamembertModel: BertHooks,
    transformers.DebertaV2Model: DebertaHooks,
    transformers.ModernBertModel: ModernBertHooks,
    transformers.MPNetModel: MPNetHooks,
}
#: The same of the classes that encoders themselves are then.
HOOKED = {CLASSES[each]: kind for each, kind in KINDS.items() if each in CLASSES}
#: The end of the names of heads that read vectors at padding.
ANSWERS = "ForQuestionAnswering"


def optimize(
    model: T,
    precision: str = "fp32",
    inplace: bool = False,
    engine: str = "torch",
    directory: str | Path | None = None,
) -> T:
    """Let the encoders in a model compute faster, with the same modules and interface.

    The layers of each `BertModel`, `RobertaModel`, `XLMRobertaModel`, `CamembertModel`,
    `DebertaV2Model`, `ModernBertModel` and `MPNetModel` compute without padding, by the attention
    of this package, and for DeBERTa without tensors of T×T×C. All modules stay, and are called.
    With "fp32", parameters are shared with `model`, names in the state dict do not change, and
    the result can be trained and saved as before. If padding is on the right, features at padding
    are 0.

        >>> model = optimize(SentenceTransformer("all-MiniLM-L6-v2"))

    Args:
        model: an `nn.Module`, such as a model of transformers with any head, a
            `SentenceTransformer` or a `CrossEncoder`; or a pipeline of transformers.
        precision: of the layers. "fp32" keeps that of the model; outputs are equal within 1e-5.
            "bf16" and "int8" are for inference and copy the layers; see `precision.convert`.
            Outputs stay in fp32.
        inplace: change `model` itself, and return it.
        engine: "torch", or "onnxruntime" for inference alone: a program in "fp32" or "int8"
            computes the encoders. It needs the extra `onnx`. Copies and pickles have it, too.
        directory: of the program, with engine "onnxruntime": read if it is there, written
            otherwise. By default, it is made in a temporary directory.

    Returns:
        The model, of the same class.

    Raises:
        UsageError: the precision is unknown, parameters are on the meta device, or `model` is
            not an `nn.Module`.

    Warns:
        UserWarning: for encoders that stay as they are, with the reason.
    """
    _check(precision, engine, directory)
    if not isinstance(model, nn.Module):
        inner = getattr(model, "model", None)
        if not isinstance(inner, nn.Module):
            raise UsageError(
                f"model is a {type(model).__name__}, but must be an nn.Module or a pipeline of "
                "transformers."
            )
        result: Any = model if inplace else copy.copy(model)
        result.model = optimize(inner, precision, inplace, engine, directory)
        return result
    tensors = [*model.parameters(), *model.buffers()]
    if any(each.is_meta for each in tensors):
        raise UsageError("model has parameters on the meta device: load their values first.")
    if not inplace:
        # What is found in the memo is not copied.
        model = copy.deepcopy(model, {id(each): each for each in tensors})
    changed: Any = model
    heads = [each for each in changed.modules() if isinstance(each, transformers.PreTrainedModel)]
    change: Change = partial(_add_hooks, precision=precision, heads=heads)
    if engine in ENGINES:
        module = importlib.import_module(ENGINES[engine])
        change = partial(module.install, precision=precision, directory=directory)
    _change(changed, change)
    return model


def _check(precision: str, engine: str, directory: str | Path | None) -> None:
    """Check the arguments of `optimize`."""
    engines = ("torch", *ENGINES)
    if engine not in engines:
        raise ConfigurationError(
            f"engine is {engine!r}, but must be one of: {', '.join(engines)}."
        )
    known = [each for each in PRECISIONS if engine == "torch" or each != "bf16"]
    if precision not in known:
        raise ConfigurationError(
            f"precision is {precision!r}, but must be one of: {', '.join(known)}."
        )
    if directory is not None and engine == "torch":
        raise ConfigurationError(
            f"directory is {str(directory)!r}, but engine 'torch' has no program: leave it out."
        )


def _change(model: nn.Module, change: Change) -> None:
    """Let the encoders in a model compute by this package; it may be an encoder itself."""
    found = 0
    reasons = {}
    for name, module in list(model.named_modules()):
        # Exactly such a class, because a subclass may compute something else.
        kind = KINDS.get(type(module)) or HOOKED.get(type(module))
        if kind is not None:
            found += 1
            parents = (each for each in model.modules() if module in each.children())
            reason = change(module, kind, any(map(_reads_padding, parents)))
            if reason:
                reasons[name or type(module).__name__] = reason
    if reasons or not found:
        stay = ", ".join(f"{name} ({reason})" for name, reason in reasons.items())
        known = ", ".join(each.__name__ for each in KINDS)
        warnings.warn(
            f"these encoders stay as they are: {stay}."
            if reasons
            else f"nothing to optimize in {type(model).__name__}: it has none of {known}.",
            stacklevel=3,
        )


def _add_hooks(
    model: Any, kind: type[Hooks], reads_padding: bool, precision: str, heads: list[Any]
) -> str:
    """Give an encoder its hooks, and convert its layers; see `Change`."""
    hooks = _hooks_of(model, kind)
    if isinstance(hooks, str):
        return hooks
    hooks.keeps_padding |= reads_padding
    hooks.reads_first |= any(model in each.children() for each in heads)
    convert(model, hooks, precision)
    _faster_products(model.get_submodule(hooks.owner))
    return ""


def _hooks_of(model: Any, kind: type[Hooks]) -> Hooks | str:
    """The hooks of an encoder, which it gets if it has none; or the reason why it stays."""
    owner = model.get_submodule(kind.owner)
    owners = (getattr(hook, "__self__", None) for hook in owner._forward_pre_hooks.values())
    for each in owners:
        if isinstance(each, Hooks):
            return each
    reason = kind.unsupported(model) or _other_attention(owner, kind)
    if reason:
        return reason
    try:
        hooks = kind(model.config)
    except ConfigurationError as error:
        return str(error).rstrip(".")
    owner.register_forward_pre_hook(hooks.enter, with_kwargs=True)
    owner.register_forward_hook(hooks.after, with_kwargs=True)
    for module in owner.modules():
        module.__class__ = CLASSES.get(type(module), type(module))
    return hooks


def _other_attention(owner: Any, kind: type[Hooks]) -> str:
    """Which layer has a self-attention whose class cannot be exchanged, or an empty string."""
    for index, layer in enumerate(getattr(owner, "layers", None) or owner.layer):
        attention = kind.attention_of(layer)
        if type(attention) not in CLASSES or "forward" in attention.__dict__:
            return f"the self-attention of layer {index} is not that of transformers"
    return ""


def _reads_padding(parent: nn.Module) -> bool:
    """Whether a module reads vectors of its encoder at padding."""
    # Its softmax over the positions of a text includes padding; GLiNER averages all layers.
    answers = any(each.__name__.endswith(ANSWERS) for each in type(parent).__mro__)
    return answers or hasattr(parent, "layers_fuser")


def _faster_products(layers: nn.Module) -> None:
    """Let plain linear layers compute by what is fastest on this processor."""
    for module in layers.modules() if faster_products() else ():
        if type(module) is nn.Linear and "forward" not in module.__dict__:
            module.__class__ = FasterLinear
