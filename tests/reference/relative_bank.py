"""The relative bank (Inkling, 2026): score_ij += r_i · P_{i−j}, r_i = W_R x_i.

One-sided, P has a column for each of i − j = 0, ..., E − 1; two-sided, for −(E − 1), ..., E − 1.
Other distances add nothing.
"""

from . import attention


def attend(x, weights, positions, num_heads, padding=None, *, bank_width=16, bank_extent=1024,
           bidirectional=True):  # fmt: skip
    projection, bank = weights["layer_terms.r_proj.weight"], weights["layer_terms.bank"]
    assert len(bank) == bank_width
    lowest = 1 - bank_extent if bidirectional else 0
    assert bank.size(1) == bank_extent - lowest

    def positional(sentence):
        mixed = [projection.mv(word).view(num_heads, bank_width) for word in sentence]

        def term(h, i, j):
            if not lowest <= i - j < bank_extent:
                return sentence.new_zeros(())
            return sum(mixed[i][h, r] * bank[r, i - j - lowest] for r in range(bank_width))

        return attention.bias_table(term, num_heads, len(sentence), len(sentence))

    return attention.attend(x, weights, num_heads, padding, positional)
