"""CABLE (Veisi et al. 2025): score_ij −= Σ_{l=j+1..i} softplus(w·x_l + b).

Two-sided, keys on the right get the sum over l = i+1..j; one-sided, c_i − c_j is continued to the
right, where a decoder hides keys.
"""

from . import attention


def attend(x, weights, positions, num_heads, padding=None, *, bidirectional=True, **_):
    weight, bias = weights["layer_terms.gate.weight"], weights["layer_terms.gate.bias"]

    def positional(sentence):
        penalties = ((sentence @ weight.T + bias).exp() + 1).log()

        def term(h, i, j):
            if j <= i:
                return -penalties[j + 1 : i + 1, h].sum()
            between = penalties[i + 1 : j + 1, h].sum()
            return -between if bidirectional else between

        return attention.bias_table(term, num_heads, len(sentence), len(sentence))

    return attention.attend(x, weights, num_heads, padding, positional)
