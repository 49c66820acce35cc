"""What users may change in an encoder, and what that means for padding."""

import functools

from torch import nn

#: Modules of torch that compute each token alone.
BY_TOKEN = {
    "Dropout",
    "Embedding",
    "Identity",
    "LayerNorm",
    "Linear",
    "ModuleDict",
    "ModuleList",
    "ParameterDict",
    "Sequential",
}
#: Where the modules are from that the hooks know.
OWN = ("transformers.", "tupe_fairseq.")
#: Where modules are from that compute each token alone.
PACKAGES = (*OWN, "peft.", "torch.ao.nn.quantized.")


def by_token(module: nn.Module) -> bool:
    """Whether a module is known to compute each token alone, apart from attention."""
    return all(
        _is_by_token(type(each).__module__, type(each).__name__) and not changed(each)
        for each in module.modules()
    )


@functools.cache
def is_own(package: str) -> bool:
    """Whether a module whose class is from there is one that the hooks know."""
    return package.startswith(OWN)


@functools.cache
def _is_by_token(package: str, name: str) -> bool:
    """Whether modules of a class from there compute each token alone."""
    if package == "torch.nn.modules.activation":
        return name != "MultiheadAttention"
    return package.startswith(PACKAGES) or (package.startswith("torch.nn.") and name in BY_TOKEN)


def changed(module: nn.Module) -> bool:
    """Whether a user has changed what calling a module does."""
    if "forward" in module.__dict__ or module._backward_hooks or module._backward_pre_hooks:
        return True
    if not (module._forward_pre_hooks or module._forward_hooks):
        return False
    # transformers 5 collects outputs by hooks of its own.
    hooks = (*module._forward_pre_hooks.values(), *module._forward_hooks.values())
    return not all(is_own(str(getattr(each, "__module__", ""))) for each in hooks)
