"""Pruning of feed-forward units: AdaPrune (Fan et al. 2021), as fairseq's trainer asks for it.

https://openreview.net/forum?id=_CMSV7FTzGI. With --ffn-blocks-to-remove N fairseq removes N units
of each layer before it restores a checkpoint that was pruned alike.
"""

import torch
from torch import nn


class PrunableFeedForward(nn.Module):
    """Mixin for layers with `fc1` and `fc2`; the names of the methods are fairseq's."""

    fc1: nn.Linear
    fc2: nn.Linear

    @torch.no_grad()
    def _get_fc_rank(self, remove_num: int) -> list[int]:
        """The units to remove: those with the smallest sum of absolute weights."""
        weight = self.fc1.weight.abs().sum(1) + self.fc2.weight.abs().sum(0) + self.fc1.bias.abs()
        return weight.argsort(stable=True)[:remove_num].tolist()

    @torch.no_grad()
    def _prune_fc_layer(self, remove_index: list[int]) -> None:
        """Remove units; their parameters are new objects, to be made before the optimizer."""
        kept = torch.ones(self.fc1.out_features, dtype=torch.bool, device=self.fc1.weight.device)
        kept[remove_index] = False
        self.fc1.weight = nn.Parameter(self.fc1.weight[kept])
        self.fc1.bias = nn.Parameter(self.fc1.bias[kept])
        self.fc2.weight = nn.Parameter(self.fc2.weight[:, kept])
        self.fc1.out_features = self.fc2.in_features = len(self.fc1.bias)
