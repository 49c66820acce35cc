"""A GRU (Cho et al. 2014, as torch documents it) over words, or over positions alone.

r = σ(W_ir x + b_ir + W_hr h + b_hr), z likewise, n = tanh(W_in x + b_in + r ⊙ (W_hn h + b_hn)),
h := (1 − z) ⊙ n + z ⊙ h. Words: x_t := [state from the left ; state from the right], or in a
decoder the state from the left. Recursive: x_t + p_t, p_{t+1} = h of p_t with the input 1.

positions: "from_left", "from_right" or "path.step" (".weight_ih_l0" and so on), "path.first".
"""

import torch

from .each_word import each_word


def step(x, h, positions, name):
    def gates(vector, kind):
        weight = positions[f"{name}.weight_{kind}_l0"]
        bias = positions[f"{name}.bias_{kind}_l0"]
        return (weight.mv(vector) + bias).chunk(3)

    input_r, input_z, input_n = gates(x, "ih")
    state_r, state_z, state_n = gates(h, "hh")
    r = (input_r + state_r).sigmoid()
    z = (input_z + state_z).sigmoid()
    n = (input_n + r * state_n).tanh()
    return (1 - z) * n + z * h


def states(words, positions, name):
    h = words[0].new_zeros(positions[f"{name}.weight_hh_l0"].shape[1])
    found = []
    for word in words:
        h = step(word, h, positions, name)
        found.append(h)
    return found


def embed(
    x, positions, tokens=None, padding=None, start=0, *, bidirectional=True, rnn_recursive=False
):
    if rnn_recursive:
        path = [positions["path.first"]]
        for _ in range(start + x.size(1) - 1):
            path.append(step(x.new_ones(1), path[-1], positions, "path.step"))
        return each_word(x, lambda b, k, word: word + path[k], start)
    return torch.stack(
        [both(sentence, b, positions, padding, bidirectional) for b, sentence in enumerate(x)]
    )


def both(sentence, b, positions, padding, bidirectional):
    """Padding follows the words: it is read last from the left, and after them from the right."""
    left = states(list(sentence), positions, "from_left")
    if not bidirectional:
        return torch.stack(left)
    padded = 0 if padding is None else int(padding[b].sum())
    count = len(sentence) - padded
    words = list(sentence[:count])
    rest = list(sentence[count:])
    right = states([*reversed(words), *rest], positions, "from_right")
    right = [*reversed(right[:count]), *right[count:]]
    return torch.stack([torch.cat(pair) for pair in zip(left, right, strict=True)])
