"""The forgetting transformer (Lin et al. 2025): score_ij += Σ_{l=j+1..i} ln σ(w·x_l + b).

Two-sided, keys on the right have gates of their own and get Σ_{l=i+1..j}; one-sided, the sum F_i −
F_j is continued to the right, where a decoder hides keys.
"""

import torch

from . import attention


def attend(x, weights, positions, num_heads, padding=None, *, bidirectional=True, **_):
    outputs, maps = [], []
    for n, sentence in enumerate(x):
        gates = sentence @ weights["layer_terms.gate.weight"].T + weights["layer_terms.gate.bias"]
        logs = gates.sigmoid().log()
        left, right = logs[:, :num_heads], logs[:, num_heads:]

        def term(h, i, j, left=left, right=right):
            if j <= i:
                return left[j + 1 : i + 1, h].sum()
            return (
                right[i + 1 : j + 1, h].sum() if bidirectional else -left[i + 1 : j + 1, h].sum()
            )

        length = range(len(sentence))
        added = [[[term(h, i, j) for j in length] for i in length] for h in range(num_heads)]
        padded = [False] * len(sentence) if padding is None else padding[n].tolist()
        output, a = attention.attend_sentence(
            sentence, weights, num_heads, padded, positional=added
        )
        outputs.append(output)
        maps.append(a)
    return torch.stack(outputs), torch.stack(maps)
