"""Adam with torch's fused kernel: `--optimizer fused_adam`, with the flags of fairseq's `adam`.

fairseq's Adam with decoupled weight decay (Kingma and Ba 2015; Loshchilov and Hutter 2019) reads
and writes each parameter in about ten operations; the fused kernel does so once. At step t

    θ ← (1 − α λ) θ − α √(1 − β₂ᵗ) / (1 − β₁ᵗ) · m / (√v + ε).

torch adds ε to √v / √(1 − β₂ᵗ) instead, so it is given ε / √(1 − β₂ᵗ). Parameters then equal those
of fairseq's Adam up to rounding. The state is fairseq's: a training with `--optimizer adam` can be
resumed with `fused_adam`, and the other way round.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from fairseq.optim import FairseqOptimizer, adam, register_optimizer
from torch import Tensor
from torch.optim.adamw import adamw

from ..base.errors import CheckpointError, ConfigurationError
from .commands import ends_commands_in_one_line


class FusedAdam(adam.Adam):
    """fairseq's Adam; parameters in half precision and AMSGrad are left to it."""

    @ends_commands_in_one_line
    @torch.no_grad()
    def step(self, closure: Callable | None = None) -> Any:
        """Perform an optimization step."""
        if not all(map(_is_fusable, self.param_groups)):
            return super().step(closure)
        loss = None if closure is None else closure()
        for group in self.param_groups:
            by_step: dict[tuple[int, torch.device], list[Tensor]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    state = self._advanced(parameter)
                    by_step[state["step"], parameter.device].append(parameter)
            for (step, device), parameters in by_step.items():
                self._update(group, parameters, step, device)
        return loss

    def _advanced(self, parameter: Tensor) -> dict[str, Any]:
        """The state of a parameter, with its step counted."""
        state = self.state[parameter]
        state["step"] = state.get("step", 0) + 1
        for name in ("exp_avg", "exp_avg_sq"):
            old = state.get(name)
            if old is not None and old.shape != parameter.shape:
                raise CheckpointError(
                    f"the optimizer's state has {name} of shape {tuple(old.shape)} for a "
                    f"parameter of shape {tuple(parameter.shape)}: the checkpoint is of another "
                    "model; give --reset-optimizer."
                )
            old = torch.zeros_like(parameter) if old is None else old.to(parameter)
            state[name] = old.contiguous()
        return state

    def _update(
        self, group: dict[str, Any], parameters: list[Tensor], step: int, device: torch.device
    ) -> None:
        """Update parameters whose states have the same step."""
        states = [self.state[parameter] for parameter in parameters]
        beta1, beta2 = group["betas"]
        # The kernel counts the steps, each in a tensor.
        steps = torch.full((len(parameters),), step - 1.0, device=device)
        adamw(
            parameters,
            [p.grad for p in parameters if p.grad is not None],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            list(steps.unbind()),
            fused=True,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"] / math.sqrt(1 - beta2**step),
            maximize=False,
        )


def _is_fusable(group: dict[str, Any]) -> bool:
    if group.get("amsgrad", False):
        return False
    learned = [p for p in group["params"] if p.grad is not None]
    tensors = [tensor for p in learned for tensor in (p, p.grad)]
    # The kernel reads all numbers in the order of memory.
    return all(
        tensor.layout == torch.strided
        and tensor.is_contiguous()
        and tensor.dtype in (torch.float32, torch.float64)
        and tensor.device.type in ("cpu", "cuda")
        for tensor in tensors
    )


@register_optimizer("fused_adam", dataclass=adam.FairseqAdamConfig)
class FairseqFusedAdam(adam.FairseqAdam):
    """`--optimizer fused_adam`."""

    def __init__(self, cfg: adam.FairseqAdamConfig, params: list[Tensor]):
        # Not that of FairseqAdam, which chooses apex on GPUs.
        FairseqOptimizer.__init__(self, cfg)
        if cfg.fp16_adam_stats:
            raise ConfigurationError("--fp16-adam-stats needs --optimizer adam and apex.")
        self._optimizer = FusedAdam(params, **self.optimizer_config)


# Checkpoints name the class, and fairseq resumes only with a class of that name.
FairseqFusedAdam.__name__ = adam.FairseqAdam.__name__
