"""A transplant with another loss, for results/losses.md.

    python -m examples.transplant.losses LOSS SEED SOURCE TEXT DIRECTORY [UPDATES]

The other settings are those of the plan. DIRECTORY gets what `examples.transplant` writes, and
`time.json` with the seconds of the processor.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from examples.shared import script
from tupe_fairseq.transplant import training
from tupe_fairseq.transplant.encoders import Encoder, mean_features
from tupe_fairseq.transplant.texts import Batch

from .__main__ import main as transplant

#: Weights: last features, those of other layers, relations of all layers, those of the last one.
LOSSES = {
    "features": (1.0, 4.0, 0.0, 0.0),
    "relations": (1.0, 0.0, 4.0, 0.0),
    "last_relations": (1.0, 0.0, 0.0, 4.0),
    "both": (1.0, 4.0, 4.0, 0.0),
    "relations_alone": (0.0, 0.0, 4.0, 0.0),
}


def relations(encoder: Encoder, state: Tensor, layer: int, mask: Tensor) -> list[Tensor]:
    """Logarithms of softmax(x xᵀ / √d) for queries, keys and values: B×H×T×T each."""
    attention: Any = encoder.base.encoder.layers[layer].self_attn
    found = []
    for project in (attention.q_proj, attention.k_proj, attention.v_proj):
        heads = attention.per_head(project(state)).float()
        scores = heads @ heads.transpose(-1, -2) / heads.size(-1) ** 0.5
        found.append(scores.masked_fill(~mask[:, None, None], -1e4).log_softmax(-1))
    return found


def divergence(student: list[Tensor], source: list[Tensor], mask: Tensor) -> Tensor:
    """Of the relations, on average over tokens and heads, summed over queries, keys and values."""
    rows = torch.zeros((), device=mask.device)
    for one, other in zip(student, source, strict=True):
        each = F.kl_div(one, other, reduction="none", log_target=True).sum(-1)
        rows = rows + each.mean(1)[mask].mean()
    return rows


def loss_by(name: str) -> Any:
    """A function in the place of `training.loss_of`."""
    last, others, every, final = LOSSES[name]

    def loss_of(
        student: Encoder, source: Encoder, batch: Batch, layers: float, mask_token: int | None
    ) -> Tensor:
        mask = batch.mask.bool()
        given = batch.inputs(student.has_types) | {"output_hidden_states": True}
        found = student.base(**given).hidden_states
        with torch.no_grad():
            expected = source.base(**given).hidden_states
        pairs = [(one[mask], other[mask]) for one, other in zip(found, expected, strict=True)][1:]
        errors = [F.mse_loss(one, other) / other.var() for one, other in pairs]
        means = [mean_features(each, batch) for each in pairs[-1]]
        loss = last * errors[-1] + (1 - F.cosine_similarity(*means)).mean()
        if others:
            loss = loss + others * sum(errors[:-1]) / (len(errors) - 1)
        chosen = list(range(len(errors)))[0 if every else -1 :] if every or final else []
        for layer in chosen:
            own = relations(student, found[layer], layer, mask)
            with torch.no_grad():
                target = relations(source, expected[layer], layer, mask)
            loss = loss + (every + final) / len(chosen) * divergence(own, target, mask)
        return loss

    return loss_of


def main() -> None:
    """See the module's docstring."""
    name, seed, source, text, out, *updates = sys.argv[1:]
    training.loss_of = loss_by(name)
    flags = ["--position-encoding", "tupe_r", "--length", "64", "--pairs", "0", "--bf16"]
    flags += ["--updates", *(updates or ["200"]), "--seed", seed]
    transplant([source, text, "--out", out, *flags])
    seconds = {"seconds": time.process_time()}
    (Path(out) / "time.json").write_text(json.dumps(seconds) + "\n")


if __name__ == "__main__":
    script.run(main)
