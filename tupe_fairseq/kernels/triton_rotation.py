"""The Triton kernel that rotates pairs of dimensions; it needs triton."""

import triton
import triton.language as tl
from torch import Tensor

#: Tokens of a program.
TOKENS = 64


@triton.jit
def rotation(
    x, cos, sin, out,
    x_batch, x_head, x_token, table_batch, table_token, heads, length, tokens,
    WIDTH: tl.constexpr, PAIRS: tl.constexpr, P: tl.constexpr, D: tl.constexpr,
    HALVES: tl.constexpr, BACK: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """TOKENS of the tokens of all sequences, in one head; the output is B×T×H×D."""
    row = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    head = tl.program_id(1)
    inside = (row < tokens)[:, None]
    batch = row // length
    token = row % length
    pair = tl.arange(0, P)[None, :]
    of_table = (batch * table_batch + token * table_token)[:, None] + pair
    is_pair = inside & (pair < PAIRS)
    c = tl.load(cos + of_table, mask=is_pair, other=0.0)
    s = tl.load(sin + of_table, mask=is_pair, other=0.0)
    if BACK:
        s = -s
    x += (batch * x_batch + head * x_head + token * x_token)[:, None]
    out += ((row * heads + head) * WIDTH)[:, None]
    if HALVES:
        first = tl.load(x + pair, mask=is_pair, other=0.0).to(tl.float32)
        second = tl.load(x + PAIRS + pair, mask=is_pair, other=0.0).to(tl.float32)
        tl.store(out + pair, first * c - second * s, mask=is_pair)
        tl.store(out + PAIRS + pair, first * s + second * c, mask=is_pair)
    else:
        # Whole rows, which lie together in memory
        d = tl.arange(0, 2 * P)[None, :]
        is_turned = inside & (d < 2 * PAIRS)
        whole = tl.load(x + d, mask=is_turned, other=0.0).to(tl.float32)
        first, second = tl.split(tl.reshape(whole, (TOKENS, P, 2)))
        turned = tl.interleave(first * c - second * s, first * s + second * c)
        tl.store(out + d, turned, mask=is_turned)
    if WIDTH > 2 * PAIRS:
        d = tl.arange(0, D)[None, :]
        stays = inside & (d >= 2 * PAIRS) & (d < WIDTH)
        tl.store(out + d, tl.load(x + d, mask=stays), mask=stays)


def launch(x: Tensor, cos: Tensor, sin: Tensor, out: Tensor, halves: bool, back: bool) -> None:
    """Rotate x, B×H×T×D, into `out`, which is B×T×H×D in memory; see `rotation.rotate`."""
    x = x if x.stride(-1) == 1 else x.contiguous()
    cos = cos.contiguous()
    sin = sin.contiguous()
    # Tables for all sequences have no stride of the batch.
    table_batch = cos.stride(0) if cos.dim() == 4 and cos.size(0) > 1 else 0
    batch, heads, length, width = x.shape
    pairs = cos.size(-1)
    rotation[triton.cdiv(batch * length, TOKENS), heads](
        x,
        cos,
        sin,
        out,
        *x.stride()[:3],
        table_batch,
        cos.stride(-2),
        heads,
        length,
        batch * length,
        WIDTH=width,
        PAIRS=pairs,
        P=triton.next_power_of_2(pairs),
        D=triton.next_power_of_2(width),
        HALVES=halves,
        BACK=back,
        TOKENS=TOKENS,
    )
