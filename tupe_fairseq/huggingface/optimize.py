"""`optimize`: encoders of transformers without padding, by the attention of this package."""

import copy
import importlib
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import transformers
from torch import nn

from ..base.errors import ConfigurationError, UsageError
from .gate import Gate, unchanged_on_error
from .modeling import TupeModel
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
    *,
    texts: Sequence[Any] | None = None,
    least_cosine: float | None = None,
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
        texts: with which each changed encoder is compared with its source, one by one: strings,
            if `model` has a tokenizer, or token ids of each. By default, 16 texts of 2 to 32
            random tokens; none for "fp32" with engine "torch", unless `least_cosine` is given.
        least_cosine: of the mean features of each text. By default, 0.9999 in "fp32", 0.99 in
            "bf16" and 0.98 in "int8".

    Returns:
        The model, of the same class. If encoders were compared, its `fidelity` (for a pipeline,
        that of its `model`) has the mean and the least cosine of the encoder with the lowest, and
        that of each encoder its own. It is logged, too.

    Raises:
        UsageError: the precision is unknown, parameters are on the meta device, `model` is
            not an `nn.Module`, or a cosine is below the limit. `model` stays as it was.

    Warns:
        UserWarning: for encoders that stay as they are, with the reason.
    """
    _check(precision, engine, directory)
    gate = Gate(model, precision, engine, texts, least_cosine)
    inner: Any = model if isinstance(model, nn.Module) else getattr(model, "model", None)
    if not isinstance(inner, nn.Module):
        raise UsageError(
            f"model is a {type(model).__name__}, but must be an nn.Module or a pipeline of "
            "transformers."
        )
    tensors = [*inner.parameters(), *inner.buffers()]
    if any(each.is_meta for each in tensors):
        raise UsageError("model has parameters on the meta device: load their values first.")
    changed: Any = inner if inplace else _copy(inner)
    heads = [each for each in changed.modules() if isinstance(each, transformers.PreTrainedModel)]
    change: Change = partial(_add_hooks, precision=precision, heads=heads)
    if engine in ENGINES:
        module = importlib.import_module(ENGINES[engine])
        change = partial(module.install, precision=precision, directory=directory)
    with unchanged_on_error(changed):
        _change(changed, change, gate)
    if inner is model:
        return changed
    result: Any = model if inplace else copy.copy(model)
    result.model = changed
    return result


def _copy(model: Any) -> Any:
    """A model with the same parameters and buffers."""
    # What is found in the memo is not copied.
    return copy.deepcopy(model, {id(e): e for e in (*model.parameters(), *model.buffers())})


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


def _change(model: Any, change: Change, gate: Gate) -> None:
    """Let the encoders in a model compute by this package; it may be an encoder itself."""
    found = 0
    measured = []
    reasons = {}
    for name, module in list(model.named_modules()):
        # Exactly such a class, because a subclass may compute something else.
        kind = KINDS.get(type(module)) or HOOKED.get(type(module))
        if kind is not None:
            found += 1
            parents = (each for each in model.modules() if module in each.children())
            source = _copy(module) if gate.measures else None
            reason = change(module, kind, any(map(_reads_padding, parents)))
            if reason:
                reasons[name or type(module).__name__] = reason
            elif source is not None:
                measured.append(gate.measure(source, module))
    if measured:
        model.fidelity = min(measured, key=lambda each: each.least)
    if reasons or not found:
        stay = ", ".join(f"{name} ({reason})" for name, reason in reasons.items())
        warnings.warn(
            f"these encoders stay as they are: {stay}." if reasons else _nothing(model),
            stacklevel=3,
        )


def _nothing(model: Any) -> str:
    """Why there is nothing to optimize."""
    known = ", ".join(each.__name__ for each in KINDS)
    why = f"it has none of {known}."
    if any(isinstance(each, TupeModel) for each in model.modules()):
        why = (
            "its TupeModel is of this package, and computes so already. For int8, convert it to "
            "ONNX: scripts/convert_checkpoint.py --to onnx --int8 yes."
        )
    return f"nothing to optimize in {type(model).__name__}: {why}"


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
