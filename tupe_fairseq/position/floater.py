"""FLOATER (Liu et al. 2020): positions as the path of a neural ordinary differential equation.

p(t) = p(s) + ∫_s^t h(τ, p(τ)) dτ, equation 3; token k is at t = 0.1·k. p(0) and the network h are
learned, and integration gives any number of positions. Departure: positions enter the input only,
not each layer.
"""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from ..errors import ConfigurationError
from .base import PositionEncoding, Shape, check_at_least, register_position_encoding
from .tables import widened

#: Time between neighbouring positions.
STEP = 0.1


class ZeroLinear(nn.Module):
    """A linear map that is zero at initialisation, so that all positions start equal.

    With random dynamics |p| grows with time: at position 127 it is 13 times the norm of token
    embeddings, at 511 it is 100 times. Not nn.Linear, which fairseq's RoBERTa initialises
    randomly.
    """

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


@register_position_encoding("floater")
class FloaterPosition(PositionEncoding):
    """x + p(t_k) at the input; gradients pass through the solver (Kutta's 3/8 rule)."""

    enters = "input"
    paper = "Liu 2020"

    def __init__(
        self,
        shape: Shape,
        *,
        floater_steps: Annotated[int, "solver steps between neighbouring positions"] = 1,
        floater_width: Annotated[int, "hidden width of the dynamics h"] = 64,
    ):
        super().__init__(shape)
        check_at_least("--floater-steps", floater_steps, 1)
        check_at_least("--floater-width", floater_width, 1)
        self.odeint = _solver()
        self.step_size = STEP / floater_steps
        self.first = nn.Parameter(torch.empty(shape.embed_dim))
        nn.init.normal_(self.first, std=0.02)
        self.dynamics = nn.Sequential(
            nn.Linear(shape.embed_dim + 1, floater_width),
            nn.Tanh(),
            ZeroLinear(floater_width, shape.embed_dim),
        )
        self._known: tuple[object, Tensor] | None = None

    def embed(self, x, tokens=None, padding_mask=None, start=0) -> Tensor:
        path = self.path if torch.is_grad_enabled() else self._known_path
        return x + path(start + x.size(1))[start:].to(x.dtype)

    def path(self, length: int) -> Tensor:
        """p(t_0), ..., p(t_{length−1}): length×C."""
        # Not in half precision, in which neighbouring times coincide and rounding errors add up.
        first = self.first.to(widened(self.first.dtype))
        return first[None] if length == 1 else self._solve(first, 0, length)

    def _known_path(self, length: int) -> Tensor:
        """As `path` without gradients; positions are cached, and extended when needed."""
        # In-place changes alter a parameter's version; moving or casting it alters its address.
        state = [(p.data_ptr(), p._version) for p in self.parameters()]
        if self._known is None or self._known[0] != state:
            self._known = state, self.path(1)
        known = self._known[1]
        if len(known) < length:
            longer = min(max(length, 2 * len(known)), self.shape.max_positions)
            new = self._solve(known[-1], len(known) - 1, max(longer, length))
            known = torch.cat((known, new[1:]))
            self._known = state, known
        return known[:length]

    def _solve(self, position: Tensor, start: int, stop: int) -> Tensor:
        """The path from a position at t_start to t_{stop−1}, both included."""
        dtype = position.dtype
        parameters = {name: p.to(dtype) for name, p in self.dynamics.named_parameters()}

        def slope(time: Tensor, position: Tensor) -> Tensor:
            return functional_call(self.dynamics, parameters, torch.cat((position, time[None])))

        times = STEP * torch.arange(start, stop, dtype=dtype, device=position.device)
        options = {"step_size": self.step_size}
        return self.odeint(slope, position, times, method="rk4", options=options)


def _solver():
    try:
        from torchdiffeq import odeint
    except ImportError as error:
        raise ConfigurationError(
            "--position-encoding floater needs the library torchdiffeq: "
            "pip install 'tupe_fairseq[floater]'."
        ) from error
    return odeint
