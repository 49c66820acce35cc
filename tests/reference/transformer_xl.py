"""Transformer-XL's relative scores (Dai et al. 2019, section 3.3), keys on both sides (XLNet).

score_ij = [ x_i W^Q (x_j W^K)ᵀ + x_i W^Q (W_{K,R} R_{i−j})ᵀ + u (x_j W^K)ᵀ + v (W_{K,R} R_{i−j})ᵀ
] / √d, where R_{i−j} is the sinusoid of the distance.

weights: also "layer_terms.r_proj.weight", W_{K,R}, and "layer_terms.content_bias", u, and
"layer_terms.position_bias", v, H×1×d.
"""

from . import attention
from .sinusoidal import wave


def attend(x, weights, positions, num_heads, padding=None):
    width = x.size(2)
    d = width // num_heads
    u = weights["layer_terms.content_bias"]
    v = weights["layer_terms.position_bias"]

    def score_term(h, i, j, q, k):
        projected = weights["layer_terms.r_proj.weight"].mv(wave(i - j, width))
        r = projected[h * d : (h + 1) * d]
        return q.dot(r) + u[h, 0].dot(k) + v[h, 0].dot(r)

    return attention.attend(x, weights, num_heads, padding, score_term=score_term)
