"""The authors' TUPE on its own parameters: the model that `--check` compares a conversion with.

From the paper (Ke, He, Liu, ICLR 2021, equations 7 and 8, section 3.2) and the release: queries
are scaled by (2D)^−½ after their projection, the relative bias is not scaled, layers are post-LN
unless --encoder-normalize-before. No module of this package is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

State = Mapping[str, Tensor]
Activation = Callable[[Tensor], Tensor]
ENCODER, HEAD = "decoder.sentence_encoder.", "decoder.lm_head."
NUM_BUCKETS, MAX_DISTANCE = 32, 128


def hidden_and_logits(
    state: State, heads: int, tokens: Tensor, activation: Activation, padding: int = 1
) -> tuple[Tensor, Tensor]:
    """Ids B×T -> hidden states B×T×C and masked-LM logits B×T×V, without dropout."""
    enc = {n.removeprefix(ENCODER): value for n, value in state.items() if n.startswith(ENCODER)}
    padded = tokens.eq(padding)
    x = enc["embed_tokens.weight"][tokens]
    if "emb_layer_norm.weight" in enc:
        x = norm(x, enc, "emb_layer_norm")
    x = x * ~padded[..., None]
    # B×H×T×T
    scores = positional(enc, heads, tokens.size(1)).where(~padded[:, None, None], -math.inf)
    before = "emb_out_layer_norm.weight" in enc
    layer = 0
    while f"layers.{layer}.fc1.weight" in enc:
        x = _layer(x, enc, f"layers.{layer}.", scores, before, activation)
        layer += 1
    if before:
        x = norm(x, enc, "emb_out_layer_norm")
    h = norm(activation(linear(x, state, f"{HEAD}dense")), state, f"{HEAD}layer_norm")
    return x, F.linear(h, state[f"{HEAD}weight"], state[f"{HEAD}bias"])


def _layer(
    x: Tensor, enc: State, name: str, scores: Tensor, before: bool, activation: Activation
) -> Tensor:
    y = norm(x, enc, f"{name}self_attn_layer_norm") if before else x
    x = x + _attend(y, enc, f"{name}self_attn.", scores)
    x = x if before else norm(x, enc, f"{name}self_attn_layer_norm")
    y = norm(x, enc, f"{name}final_layer_norm") if before else x
    x = x + linear(activation(linear(y, enc, f"{name}fc1")), enc, f"{name}fc2")
    return x if before else norm(x, enc, f"{name}final_layer_norm")


def _attend(x: Tensor, enc: State, name: str, scores: Tensor) -> Tensor:
    joint = F.linear(x, enc[f"{name}in_proj_weight"], enc[f"{name}in_proj_bias"])
    # B×T×3C -> 3×B×H×T×D
    q, k, v = joint.unflatten(-1, (3, scores.size(1), -1)).permute(2, 0, 3, 1, 4)
    weights = (q @ k.mT / math.sqrt(2 * q.size(-1)) + scores).softmax(-1)
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
    score = products[:, 1:, 1:].clone()
    score[:, :, 0], score[:, 0, :] = products[:, 1, 1, None], products[:, 0, 0, None]
    table = enc.get("relative_attention_bias.weight")
    if table is None:
        return score
    rows = torch.tensor([[_row(i, j) for j in range(length)] for i in range(length)])
    return score + table[rows].permute(2, 0, 1)


def _row(i: int, j: int) -> int:
    """Row of the relative bias for query i and key j: T5's buckets, and two rows for [CLS]."""
    if i == 0 or j == 0:
        return NUM_BUCKETS if i else NUM_BUCKETS // 2
    sided, n = NUM_BUCKETS // 2, abs(j - i)
    exact = sided // 2
    if n >= exact:
        steps = math.log(n / exact) / math.log(MAX_DISTANCE / exact) * (sided - exact)
        n = min(exact + int(steps), sided - 1)
    return n + sided * (j > i)


def norm(x: Tensor, state: State, name: str) -> Tensor:
    """LayerNorm with the parameters of that name."""
    return F.layer_norm(x, x.shape[-1:], state[f"{name}.weight"], state[f"{name}.bias"])


def linear(x: Tensor, state: State, name: str) -> Tensor:
    """Affine map with the parameters of that name."""
    return F.linear(x, state[f"{name}.weight"], state[f"{name}.bias"])
