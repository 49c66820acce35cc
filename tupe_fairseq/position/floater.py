"""FLOATER (Liu et al. 2020): positions as the path of a neural ordinary differential equation.

p(t) = p(s) + ∫_s^t h(τ, p(τ)) dτ, equation 3; token k is at t = 0.1·k. p(0) and the network h are
learned, and integration gives any number of positions. Departure: positions enter the input only,
not each layer.

The solver is Kutta's 3/8 rule. Since h(t, p) = W_2 tanh(W_1 p + w t + b_1) + b_2 reads W_1 p alone
and the rule commutes with linear maps, it acts on W_1 p, with the same solution. The steps, which
follow each other, multiply by the small matrix W_1 W_2. One product for all returns to p.
"""

from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..base.tracing import is_exporting
from .base import PositionEncoding, Shape, check_at_least, register_position_encoding
from .dtypes import affine, widened, without_autocast
from .initial import random_vectors

#: Time between neighbouring positions.
STEP = 0.1


def _average_tanhs(start: Tensor, matrix: Tensor, inputs: Tensor) -> Tensor:
    """Kutta's steps for dy/dt = M tanh(y + u(t)): the weighted average of tanh in each, N×R.

    Args:
        start: y at the beginning, R.
        matrix: M times the step, R×R.
        inputs: u at the stages of each step, N×4×R.
    """
    y = start
    averages = list[Tensor]()
    for first, second, third, fourth in zip(*map(torch.unbind, inputs.unbind(1)), strict=True):
        a = torch.tanh(y + first)
        b = torch.addmv(y + second, matrix, a, alpha=1 / 3).tanh()
        c = torch.addmv(y + third, matrix, torch.sub(b, a, alpha=1 / 3)).tanh()
        d = torch.addmv(y + fourth, matrix, a - b + c).tanh()
        total = torch.add(a + d, b + c, alpha=3)
        y = torch.addmv(y, matrix, total, alpha=1 / 8)
        averages.append(total)
    return torch.stack(averages) / 8


class _Linear(nn.Module):
    """As nn.Linear, but initialised to zeros, which the models' initialisation does not change."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """N×I -> N×O."""
        return F.linear(x, self.weight, self.bias)


@register_position_encoding("floater")
class FloaterPosition(PositionEncoding):
    """x + p(t_k) at the input; gradients pass through the solver."""

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
        self.steps = floater_steps
        self.first = random_vectors(shape.embed_dim)
        # Zeros, so that all positions start equal: with random dynamics |p| grows with time, at
        # position 127 to 13 times the norm of token embeddings, at 511 to 100 times. Not of
        # nn.Linear, which fairseq's RoBERTa initialises randomly.
        outer = _Linear(floater_width, shape.embed_dim)
        inner = nn.Linear(shape.embed_dim + 1, floater_width)
        # The names of checkpoints; tanh stands between them.
        self.dynamics = nn.ModuleDict({"0": inner, "2": outer})
        #: The equation's constants, and the path of all positions that follows from them.
        self._cache: tuple[list[Tensor], Tensor] | None = None

    def embed(
        self, x: Tensor, tokens: object = None, padding_mask: object = None, start: int = 0
    ) -> Tensor:
        stop = start + x.size(1)
        if torch.is_grad_enabled() and not is_exporting():
            self._cache = None
            return x + self.path(stop)[start:].to(x.dtype)
        return x + self._cached_path()[start:stop].to(x.dtype)

    def path(self, length: int) -> Tensor:
        """p(t_0), ..., p(t_{length−1}): length×C."""
        with without_autocast(self.first.device.type):
            return self._solve(self._constants(), length)

    def _cached_path(self) -> Tensor:
        """All positions, without gradients; solved again if a value changes."""
        if is_exporting() and self._cache is not None:
            # A program has it as a constant.
            return self._cache[1]
        with without_autocast(self.first.device.type):
            constants = self._constants()
            if self._cache is None or not all(map(torch.equal, constants, self._cache[0])):
                # Copies, because some may be parameters themselves.
                kept = [each.clone() for each in constants]
                self._cache = kept, self._solve(constants, self.shape.max_positions)
        return self._cache[1]

    def _constants(self) -> list[Tensor]:
        """p(0), W_1 with w, b_1, W_2 and b_2, in fp32 or wider.

        In half precision, neighbouring times coincide and rounding errors add up.
        """
        wide = widened(self.first.dtype)
        first = self.first.to(wide)
        inner = affine(self.dynamics["0"], F.pad(first, (0, 1)))
        outer = affine(self.dynamics["2"], inner[1])
        return [first, *inner, *outer]

    def _solve(self, constants: list[Tensor], length: int) -> Tensor:
        first, weight, bias, back, shift = constants
        wide = first.dtype
        if length == 1:
            return first[None]
        of_position = weight[:, :-1]
        of_time = weight[:, -1]
        step = STEP / self.steps
        # W_1 b_2 t is added to the inputs of tanh, so that no stage has to add it.
        of_time = of_time + of_position @ shift
        steps = torch.arange(self.steps * (length - 1), dtype=wide, device=first.device)
        # The four stages of a step are at 0, 1/3, 2/3 and 1 of it.
        stages = torch.arange(4, dtype=wide, device=first.device) / 3
        times = step * (steps[:, None] + stages)
        inputs = times[..., None] * of_time + bias
        averages = _average_tanhs(of_position @ first, step * (of_position @ back), inputs)
        moved = averages.cumsum(0)[self.steps - 1 :: self.steps] @ back.t()
        time = STEP * torch.arange(1, length, dtype=wide, device=first.device)
        return torch.cat((first[None], first + step * moved + time[:, None] * shift))
