"""Counter-based random bits for dropout masks: SplitMix64 (Steele et al. 2014).

torch's CPU generator draws one entry of a mask after the other, which takes a third of a training
step. Here that generator draws one 64-bit key per mask. Word n of the mask is a hash of the key
and the counter n (Salmon et al. 2011), so all cores compute words at the same time, and the
backward pass computes them again instead of storing the mask.

The kernels in C take the constants below from this module.
"""

import torch
from torch import Tensor

#: Increment of SplitMix64's counter.
STEP = 0x9E3779B97F4A7C15
#: SplitMix64's mixing function: z ^= z >> shift, then z *= multiplier; the last has none.
SHIFTS = (30, 27, 31)
MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
#: Mask entries per 64-bit word. Each takes 16 bits, the lowest bits first.
ENTRIES_PER_WORD = 4
LEVELS = 1 << 16


def rounded(p: float) -> float:
    """The dropout probability in effect: p as a multiple of 1/65536, below 1."""
    return min(round(p * LEVELS), LEVELS - 1) / LEVELS


def threshold(p: float) -> int:
    """The smallest signed 16-bit value of an entry that is kept."""
    return int(rounded(p) * LEVELS) - LEVELS // 2


def draw_key() -> int:
    """Draw the key of a mask from torch's CPU generator."""
    return int(torch.empty((), dtype=torch.int64).random_())


def words_per_mask(rows: int, columns: int) -> int:
    """Number of 64-bit words in a mask of that shape; each row begins with a new word."""
    return rows * -(-columns // ENTRIES_PER_WORD)


def keep_mask(rows: int, columns: int, p: float, key: int, first: int = 0) -> Tensor:
    """The mask of one key of `draw_key`, rows×columns, True where an entry is kept.

    `p` is the probability of dropping an entry, below 1; `first` the counter of the first word.
    """
    bits = torch.arange(first, first + words_per_mask(rows, columns))
    bits.mul_(_signed(STEP)).add_(_signed(key))
    shifted = torch.empty_like(bits)
    for shift, multiplier in zip(SHIFTS, (*MULTIPLIERS, None), strict=True):
        torch.bitwise_right_shift(bits, shift, out=shifted)
        # int64 shifts copy the sign bit; the unsigned shift of SplitMix64 does not.
        bits.bitwise_xor_(shifted.bitwise_and_((1 << (64 - shift)) - 1))
        if multiplier is not None:
            bits.mul_(_signed(multiplier))
    return bits.view(torch.int16).view(rows, -1)[:, :columns] >= threshold(p)


def _signed(bits: int) -> int:
    """64 unsigned bits as the signed integer that torch.int64 stores."""
    bits &= (1 << 64) - 1
    return bits - (1 << 64) if bits >> 63 else bits
