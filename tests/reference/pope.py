"""PoPE (Gopalakrishnan et al. 2025): score_ij = Σ_m sp(q_m) sp(k_m) cos((j − i) θ_m + δ_m) / √d.

sp(z) = ln(1 + e^z), θ_m = base^{−m/d}; δ is read within [−2π, 0], its gradient passes the bounds.
"""

import math

from . import attention
from .attention import project_per_head


def attend(x, weights, positions, num_heads, padding=None, *, rope_theta=10000.0):
    delta = weights["layer_terms.phase"]
    d = delta.size(-1)
    bounded = delta + (delta.clamp(-2 * math.pi, 0) - delta).detach()

    def softplus(z):
        return (z.exp() + 1).log()

    # Scores are not products of queries and keys here: the products are taken away again.
    def project(x, weights, name, num_heads):
        rows = project_per_head(x, weights, name, num_heads)
        return [[head if name == "v_proj" else softplus(head) for head in row] for row in rows]

    def score(h, i, j, q, k):
        angles = [(j - i) * rope_theta ** (-m / d) + bounded[h, 0, m] for m in range(d)]
        return sum(q[m] * k[m] * angle.cos() for m, angle in enumerate(angles)) - q.dot(k)

    return attention.attend(x, weights, num_heads, padding, project=project, score_term=score)
