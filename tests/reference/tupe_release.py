"""The authors' release of TUPE on its own parameters: embeddings, layers, head for masked words.

Post-LN: x := LN(x + attend(x)), x := LN(x + fc2(gelu(fc1(x)))); pre-LN: x := x + f(LN(x)), and one
LN at the end. Attention and the positional score are those of `tupe`; the release keeps the three
projections of attention in one matrix.
"""

import torch
import torch.nn.functional as F

from . import tupe
from .attention import linear

ENCODER = "decoder.sentence_encoder."
WB = ("weight", "bias")


def hidden_and_logits(state, heads, tokens, padding=1):
    """B×T ids -> B×T×C and B×T×V."""
    encoder = {k.removeprefix(ENCODER): v for k, v in state.items() if k.startswith(ENCODER)}
    positions = positions_of(encoder)
    hidden = []
    for sentence in tokens:
        words = sentence[sentence != padding]
        x = torch.stack([encoder["embed_tokens.weight"][word] for word in words.tolist()])
        x = norm(x, encoder, "emb_layer_norm") if "emb_layer_norm.weight" in encoder else x
        layer = 0
        while f"layers.{layer}.fc1.weight" in encoder:
            x = one_layer(x, encoder, f"layers.{layer}.", positions, heads)
            layer += 1
        x = norm(x, encoder, "emb_out_layer_norm") if pre_norm(encoder) else x
        hidden.append(x)
    return hidden, [lm_head(x, state) for x in hidden]


def positions_of(encoder):
    found = {"weight": encoder["pos.weight"]}
    if "relative_attention_bias.weight" in encoder:
        found["relative_bias.weight"] = encoder["relative_attention_bias.weight"]
    for kind in WB:
        found[f"layer_norm.{kind}"] = encoder[f"pos_ln.{kind}"]
        if f"pos_proj.{kind}" in encoder:
            q, k = encoder[f"pos_proj.{kind}"].chunk(2)
        else:
            q, k = (encoder[f"pos_{name}_linear.{kind}"] for name in "qk")
        found |= {f"q_proj.{kind}": q, f"k_proj.{kind}": k}
    return found


def one_layer(x, encoder, layer, positions, heads):
    attention = {f"out_proj.{k}": encoder[f"{layer}self_attn.out_proj.{k}"] for k in WB}
    for kind in WB:
        parts = encoder[f"{layer}self_attn.in_proj_{kind}"].chunk(3)
        attention |= {f"{name}_proj.{kind}": part for name, part in zip("qkv", parts, strict=True)}

    def attend(x):
        return tupe.attend(x[None], attention, positions, heads)[0][0]

    def feed_forward(x):
        inner = [F.gelu(linear(row, encoder, f"{layer}fc1")) for row in x]
        return torch.stack([linear(row, encoder, f"{layer}fc2") for row in inner])

    for block, name in ((attend, "self_attn_layer_norm"), (feed_forward, "final_layer_norm")):
        if pre_norm(encoder):
            x = x + block(norm(x, encoder, f"{layer}{name}"))
        else:
            x = norm(x + block(x), encoder, f"{layer}{name}")
    return x


def pre_norm(encoder):
    return "emb_out_layer_norm.weight" in encoder


def lm_head(x, state):
    head = "decoder.lm_head."
    inner = torch.stack([F.gelu(linear(row, state, f"{head}dense")) for row in x])
    return (
        norm(inner, state, f"{head}layer_norm") @ state[f"{head}weight"].t() + state[f"{head}bias"]
    )


def norm(x, parameters, name):
    names = {f"layer_norm.{kind}": parameters[f"{name}.{kind}"] for kind in WB}
    return torch.stack([tupe.layer_norm(row, names) for row in x])
