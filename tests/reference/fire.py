"""FIRE (Li et al. 2024): score_ij = q_i·k_j / √d + f_h(ψ(|i − j|) / (ψ(max(i, j, |w|·L)) + 1e−6)).

ψ(x) = ln(1 + |c x|), and f_h(r) = Σ_k V_hk max(0, u_k r + b_k) + a_h.

positions: "layers.0.": "c", "w", "hidden_weight" u, "hidden_bias" b, "weight" V, "bias" a.
"""

from .attention import biased


def bias(h, i, j, positions, num_heads, *, fire_width=32, fire_threshold=512):
    p = {name.removeprefix("layers.0."): value for name, value in positions.items()}
    threshold = p["w"][0].abs() * fire_threshold

    def psi(x):
        return (1 + (p["c"][0] * x).abs()).log()

    later = max(i, j) if max(i, j) > threshold else threshold
    ratio = psi(abs(i - j)) / (psi(later) + 1e-6)
    total = p["bias"][h]
    for k in range(fire_width):
        hidden = p["hidden_weight"][k, 0] * ratio + p["hidden_bias"][k]
        total = total + p["weight"][h, k] * hidden.clamp(min=0)
    return total


positional_score, attend = biased(bias)
