"""Complex-valued word order (Wang et al. 2020, equation 9): r_j ⊙ exp(i (ω_j k + θ_j)).

r_j is the embedding of word j. The complex vector z is read out by W: out = W [Re z ; Im z].

positions: "frequency", ω, and "phase", θ, a row per word; "readout.weight", W.
"""

import torch

from .each_word import each_word


def embed(x, positions, tokens, padding=None, start=0):
    omega = positions["frequency"]
    theta = positions["phase"]

    def move(b, k, word):
        j = tokens[b, k - start]
        real = []
        imaginary = []
        for c, r in enumerate(word):
            angle = omega[j, c] * k + theta[j, c]
            real.append(r * angle.cos())
            imaginary.append(r * angle.sin())
        return positions["readout.weight"].mv(torch.stack(real + imaginary))

    return each_word(x, move, start)
