"""Activations by fairseq's names, for models that are used without fairseq."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

#: gelu is exact, not the approximation by tanh.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "relu": F.relu,
    "tanh": torch.tanh,
}
