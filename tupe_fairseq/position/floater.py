"""FLOATER (Liu et al. 2020): positions as the path of a neural ordinary differential equation.

p(t) = p(s) + ∫_s^t h(τ, p(τ)) dτ, equation 3; word k stands at t = 0.1·k. p(0) and the network h
are learned, so there are as many positions as one integrates. Departure: the path enters the input
alone, not each layer.
"""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from ..errors import UsageError
from .base import PositionEncoding, Shape, check_at_least, register_position_encoding
from .tables import widened

#: Time between neighbouring positions.
STEP = 0.1


class StillLinear(nn.Module):
    """A linear map that starts at zero: the path stands still until it is learned.

    From random dynamics it runs away with the time: |p| would be 13 times the words' at position
    127, and 100 times at 511. No nn.Linear, to which fairseq's RoBERTa gives random weights.
    """

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


@register_position_encoding("floater")
class FloaterPosition(PositionEncoding):
    """x + p(t_k) at the input, the gradients flowing through the solver (Kutta's 3/8 rule)."""

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
            StillLinear(floater_width, shape.embed_dim),
        )
        self._known: tuple[object, Tensor] | None = None

    def embed(self, x, tokens=None, padding_mask=None, start=0) -> Tensor:
        path = self.path if torch.is_grad_enabled() else self._known_path
        return x + path(start + x.size(1))[start:].to(x.dtype)

    def path(self, length: int) -> Tensor:
        """p(t_0), ..., p(t_{length−1}): length×C."""
        # In half precision the times of neighbours coincide and the path's roundings add up.
        first = self.first.to(widened(self.first.dtype))
        return first[None] if length == 1 else self._solve(first, 0, length)

    def _known_path(self, length: int) -> Tensor:
        """The same without gradients: what is known is kept, and grown where it is too short."""
        # Changing a parameter in place changes its version, moving or casting it its place.
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
        raise UsageError(
            "--position-encoding floater needs the library torchdiffeq: "
            "pip install 'tupe_fairseq[floater]'."
        ) from error
    return odeint
