"""Write an untrained model whose initial weights are multiplied by given factors.

    python -m examples.study.initial FILE [PATTERN=FACTOR ...] -- FLAGS

FLAGS are those of fairseq-train, which reads FILE by --finetune-from-model. PATTERN is of names of
parameters, as in `*q_proj*=2`; `matrices` are all parameters with two dimensions. With the same
seed, fairseq-train draws the same weights, so factors of 1 change nothing. `sinusoids` before the
factor replaces a table of positions first, as in `*positions*=sinusoids1`.
"""

import sys
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import torch
from fairseq import options, tasks, utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from torch import nn

from examples.shared import script
from tupe_fairseq import UsageError
from tupe_fairseq.files import replacing
from tupe_fairseq.position.tables import sinusoids


def build(flags: list[str]) -> tuple[nn.Module, object]:
    """The model that fairseq-train builds from these flags, and its configuration."""
    cfg = convert_namespace_to_omegaconf(
        options.parse_args_and_arch(options.get_training_parser(), flags)
    )
    np.random.seed(cfg.common.seed)
    utils.set_torch_seed(cfg.common.seed)
    task = tasks.setup_task(cfg.task)
    return task.build_model(cfg.model), cfg


@torch.no_grad()
def multiply(model: nn.Module, factors: list[str]) -> None:
    """Multiply the parameters that match each `PATTERN=FACTOR`.

    Raises:
        UsageError: no parameter matches.
    """
    for each in factors:
        pattern, _, factor = each.partition("=")
        found = [
            weight
            for name, weight in model.named_parameters()
            if (weight.dim() == 2 if pattern == "matrices" else fnmatch(name, pattern))
        ]
        if not found:
            raise UsageError(f"no parameter of the model matches {pattern!r}.")
        for weight in found:
            if factor.startswith("sinusoids"):
                weight.copy_(sinusoids(torch.arange(weight.size(0)), weight.size(1)))
            weight.mul_(float(factor.removeprefix("sinusoids")))


def main() -> None:
    """See the module's docstring."""
    words = sys.argv[1:]
    end = words.index("--")
    (file, *factors), flags = words[:end], words[end + 1 :]
    model, cfg = build(flags)
    multiply(model, factors)
    history = {
        "criterion_name": "",
        "optimizer_name": "",
        "lr_scheduler_state": {},
        "num_updates": 0,
    }
    state = {"cfg": cfg, "model": model.state_dict(), "optimizer_history": [history]}
    with replacing(Path(file)) as aside:
        torch.save({**state, "extra_state": {}, "args": None}, aside)


if __name__ == "__main__":
    script.run(main)
