"""CAPE (Likhomanenko et al. 2021): sinusoids of augmented positions, x + p((t + Δ + ε_t)·λ).

In training, each sequence draws a global shift Δ ~ U(−shift, shift), a local shift
ε_t ~ U(−local, local) for each token, and a scale λ with ln λ ~ U(−ln scale, ln scale). In
evaluation, positions are those of `sinusoidal`, whose frequencies and factor √C of the token
embeddings it shares. The defaults are the settings that the released code names for text; that
code's own defaults draw nothing. Positions are not centred (the code's `normalize`, for audio).
Source and target of a translation draw independently.
"""

import math
from typing import Annotated

import torch
from torch import Tensor

from .base import PositionEncoding, Shape, check_at_least, register_position_encoding
from .tables import ConstantTable, sinusoids


@register_position_encoding("cape")
class CapePosition(PositionEncoding):
    """Has no parameters; draws from torch's generator, which fairseq seeds at each update."""

    scales_tokens = True

    def __init__(
        self,
        shape: Shape,
        *,
        cape_global_shift: Annotated[float, "largest shift of a sequence, in tokens"] = 5.0,
        cape_local_shift: Annotated[
            float, "largest shift of a token, in tokens; up to 0.5, tokens keep their order"
        ] = 0.5,
        cape_scale: Annotated[float, "largest factor of the positions, at least 1"] = 1.03,
    ):
        super().__init__(shape)
        check_at_least("--cape-global-shift", cape_global_shift, 0)
        check_at_least("--cape-local-shift", cape_local_shift, 0)
        check_at_least("--cape-scale", cape_scale, 1)
        self.global_shift = cape_global_shift
        self.local_shift = cape_local_shift
        self.log_scale = math.log(cape_scale)
        self.table = ConstantTable(sinusoids(torch.arange(shape.max_positions), shape.embed_dim))

    def embed(
        self, x: Tensor, tokens: object = None, padding_mask: object = None, start: int = 0
    ) -> Tensor:
        stop = start + x.size(1)
        if not self.training:
            return x + self.table(x.dtype, slice(start, stop)).to(x.dtype)
        positions = self.augmented(torch.arange(start, stop, device=x.device), len(x))
        # B·T×C -> B×T×C
        return x + sinusoids(positions.flatten(), x.size(2)).to(x.dtype).view_as(x)

    def augmented(self, positions: Tensor, batch: int) -> Tensor:
        """T positions as B sequences draw them: B×T, fp64."""
        sequence = torch.empty(2, batch, 1, dtype=torch.float64, device=positions.device)
        shift, scale = sequence.uniform_(-1, 1)
        local = torch.empty(batch, len(positions), dtype=torch.float64, device=positions.device)
        shifted = positions + self.global_shift * shift + self.local_shift * local.uniform_(-1, 1)
        return shifted * (self.log_scale * scale).exp()
