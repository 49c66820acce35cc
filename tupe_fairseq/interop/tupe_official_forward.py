"""The release's model written out on its own parameters: what a conversion is compared with.

From the paper (Ke, He, Liu, ICLR 2021, equations 7 and 8, section 3.2) and the release's choices:
queries are scaled by (2D)^−½ after their projection, b is not scaled, padding scores −∞, layers
are post-LN unless --encoder-normalize-before. Nothing of this package's modules is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from .tupe_official import MAX_DISTANCE, NUM_BUCKETS, THEIRS

State = Mapping[str, Tensor]


def logits(
    state: State,
    heads: int,
    tokens: Tensor,
    activation: Callable[[Tensor], Tensor] = F.gelu,
    padding: int = 1,
) -> tuple[Tensor, Tensor]:
    """Hidden states B×T×C and masked-LM logits B×T×V, without dropout.

    Args:
        state: the release's state dict.
        heads: number of attention heads H.
        tokens: ids, B×T, padded on the right.
        activation: in the feed-forward blocks and the LM head.
        padding: id of padding.
    """
    enc = {n.removeprefix(THEIRS): value for n, value in state.items() if n.startswith(THEIRS)}
    padded = tokens.eq(padding)
    x = enc["embed_tokens.weight"][tokens]
    if "emb_layer_norm.weight" in enc:
        x = norm(x, enc, "emb_layer_norm")
    x = x * ~padded[..., None]
    score = positional(enc, heads, tokens.size(1))
    before = "emb_out_layer_norm.weight" in enc
    layer = 0
    while f"layers.{layer}.fc1.weight" in enc:
        x = _layer(x, enc, f"layers.{layer}.", heads, score, padded, before, activation)
        layer += 1
    if before:
        x = norm(x, enc, "emb_out_layer_norm")
    head = "decoder.lm_head."
    h = norm(activation(linear(x, state, f"{head}dense")), state, f"{head}layer_norm")
    return x, h @ state[f"{head}weight"].t() + state[f"{head}bias"]


def _layer(x, enc, name, heads, score, padded, before, activation):
    y = norm(x, enc, f"{name}self_attn_layer_norm") if before else x
    x = x + _attend(y, enc, f"{name}self_attn.", heads, score, padded)
    x = x if before else norm(x, enc, f"{name}self_attn_layer_norm")
    y = norm(x, enc, f"{name}final_layer_norm") if before else x
    x = x + linear(activation(linear(y, enc, f"{name}fc1")), enc, f"{name}fc2")
    return x if before else norm(x, enc, f"{name}final_layer_norm")


def _attend(x, enc, name, heads, score, padded):
    joint = F.linear(x, enc[f"{name}in_proj_weight"], enc[f"{name}in_proj_bias"])
    # B×T×3C -> 3×B×H×T×D
    q, k, v = joint.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
    scores = (q / math.sqrt(2 * q.size(-1))) @ k.mT + score
    weights = scores.masked_fill(padded[:, None, None], -math.inf).softmax(-1)
    return linear((weights @ v).transpose(1, 2).flatten(-2), enc, f"{name}out_proj")


def positional(enc: State, heads: int, length: int) -> Tensor:
    """The positional part of the scores, H×T×T."""
    p = norm(enc["pos.weight"][: length + 1], enc, "pos_ln")
    if "pos_proj.weight" in enc:
        q, k = linear(p, enc, "pos_proj").chunk(2, dim=-1)
    else:
        q, k = linear(p, enc, "pos_q_linear"), linear(p, enc, "pos_k_linear")
    # R×C -> H×R×D
    q, k = (rows.unflatten(-1, (heads, -1)).transpose(0, 1) for rows in (q, k))
    products = q @ k.mT / math.sqrt(2 * q.size(-1))
    reset = torch.ones(length, length, dtype=torch.bool)
    from_cls, to_cls = reset.clone(), reset.clone()
    from_cls[1:], to_cls[:, 1:], to_cls[0] = False, False, False
    theta1, theta2 = products[:, 0, 0, None, None], products[:, 1, 1, None, None]
    score = torch.where(from_cls, theta1, torch.where(to_cls, theta2, products[:, 1:, 1:]))
    table = enc.get("relative_attention_bias.weight")
    if table is None:
        return score
    rows = torch.tensor([[_row(i, j) for j in range(length)] for i in range(length)])
    return score + table[rows].permute(2, 0, 1)


def _row(i: int, j: int) -> int:
    """Row of the relative bias for query i and key j."""
    if i == 0:
        return NUM_BUCKETS // 2
    if j == 0:
        return NUM_BUCKETS
    sided, distance = NUM_BUCKETS // 2, abs(j - i)
    exact = sided // 2
    if distance >= exact:
        # ⌊log(n/e) / log(max/e) · s⌋ in integers: the largest k with (n/e)^s ≥ (max/e)^k.
        steps, k = sided - exact, 0
        while k + 1 < steps and distance**steps * exact ** (k + 1) >= exact**steps * (
            MAX_DISTANCE ** (k + 1)
        ):
            k += 1
        distance = exact + k
    return distance + sided * (j > i)


def norm(x: Tensor, state: State, name: str) -> Tensor:
    """LayerNorm with the parameters of that name."""
    return F.layer_norm(x, x.shape[-1:], state[f"{name}.weight"], state[f"{name}.bias"])


def linear(x: Tensor, state: State, name: str) -> Tensor:
    """Affine map with the parameters of that name."""
    return F.linear(x, state[f"{name}.weight"], state[f"{name}.bias"])
