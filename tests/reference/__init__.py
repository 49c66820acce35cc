"""The papers' equations in loops over heads, queries and keys, float64, apart from the package.

Nothing here imports `tupe_fairseq`, and nothing is vectorised over positions, so that a mistake
there has no twin here. One file per encoding, each with

    attend(x, weights, positions, num_heads, padding=None, **options) -> output, attention weights

    x          B×T×C, words before positions enter
    weights    q_proj, k_proj, v_proj, out_proj: {"q_proj.weight": C×C, "q_proj.bias": C, ...}
    positions  the tensors of the encoding by name
    padding    B×T, True at padding

or, where positions enter the input alone,

    embed(x, positions, tokens=None, padding=None, start=0, **options) -> B×T×C

    tokens     B×T, ids of the words
    start      position of the first word
"""
