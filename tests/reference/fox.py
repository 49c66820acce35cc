"""The forgetting transformer (Lin et al. 2025): score_ij += Σ_{l=j+1..i} ln σ(w·x_l + b).

Two-sided, keys on the right have gates of their own and get Σ_{l=i+1..j}; one-sided, the sum F_i −
F_j is continued to the right, where a decoder hides keys.
"""

from . import attention


def attend(x, weights, positions, num_heads, padding=None, *, bidirectional=True, **_):
    weight, bias = weights["layer_terms.gate.weight"], weights["layer_terms.gate.bias"]

    def positional(sentence):
        logs = (sentence @ weight.T + bias).sigmoid().log()
        left, right = logs[:, :num_heads], logs[:, num_heads:]

        def term(h, i, j):
            if j <= i:
                return left[j + 1 : i + 1, h].sum()
            between = slice(i + 1, j + 1)
            return right[between, h].sum() if bidirectional else -left[between, h].sum()

        return attention.bias_table(term, num_heads, len(sentence), len(sentence))

    return attention.attend(x, weights, num_heads, padding, positional)
