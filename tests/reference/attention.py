"""Softmax attention: a_ij = softmax_j(score_ij), o_i = Σ_j a_ij v_j."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

#: (head, i, j, q_i, k_j) -> what a paper adds to q_i·k_j before the scale.
ScoreTerm = Callable[[int, int, int, Tensor, Tensor], Tensor]
#: (head, i, j) -> what a paper adds to v_j, or multiplies it by.
ValueTerm = Callable[[int, int, int], Tensor]
#: (x, weights, name of the projection, number of heads) -> [position][head], see below.
Projection = Callable[[Tensor, dict[str, Tensor], str, int], list[list[Tensor]]]


def attend(
    x: Tensor,
    weights: dict[str, Tensor],
    num_heads: int,
    padding: Tensor | None = None,
    positional: Tensor | None = None,
    **terms,
) -> tuple[Tensor, Tensor]:
    """x B×T×C -> output B×T×C and weights B×H×T×T; `terms` as in `attend_sentence`.

    positional: what is added to the scores, H×T×T.
    """
    outputs = []
    attention = []
    for b, sentence in enumerate(x):
        padded = [False] * len(sentence) if padding is None else padding[b].tolist()
        output, a = attend_sentence(sentence, weights, num_heads, padded, positional, **terms)
        outputs.append(output)
        attention.append(a)
    return torch.stack(outputs), torch.stack(attention)


def attend_sentence(
    x: Tensor,
    weights: dict[str, Tensor],
    num_heads: int,
    padded: list[bool],
    positional: Tensor | None = None,
    score_terms: int = 1,
    score_term: ScoreTerm | None = None,
    value_term: ValueTerm | None = None,
    factor: ValueTerm | None = None,
    project: Projection | None = None,
) -> tuple[Tensor, Tensor]:
    """score_ij = (q_i·k_j + score_term) / √(score_terms·d) + positional[head, i, j].

    output_i = Σ_j a_ij factor_ij (v_j + value_term); the weights are returned without the factor.
    """
    length, width = x.shape
    scale = 1 / math.sqrt(score_terms * (width // num_heads))
    project = project or project_per_head
    q, k, v = (project(x, weights, f"{name}_proj", num_heads) for name in "qkv")
    keys = [j for j in range(length) if not padded[j]]

    def score(h: int, i: int, j: int) -> Tensor:
        correlation = q[i][h].dot(k[j][h])
        if score_term is not None:
            correlation = correlation + score_term(h, i, j, q[i][h], k[j][h])
        return correlation * scale + (0 if positional is None else positional[h, i, j])

    def value(h: int, i: int, j: int) -> Tensor:
        found = v[j][h] if value_term is None else v[j][h] + value_term(h, i, j)
        return found if factor is None else factor(h, i, j) * found

    attention = x.new_zeros(num_heads, length, length)
    rows = []
    for i in range(length):
        heads = []
        for h in range(num_heads):
            a = softmax([score(h, i, j) for j in keys])
            heads.append(sum(a_j * value(h, i, j) for a_j, j in zip(a, keys, strict=True)))
            for a_j, j in zip(a, keys, strict=True):
                attention[h, i, j] = a_j.item()
        rows.append(linear(torch.cat(heads), weights, "out_proj"))
    return torch.stack(rows), attention


def softmax(scores: list[Tensor]) -> list[Tensor]:
    largest = max(score.item() for score in scores)
    exponentials = [(score - largest).exp() for score in scores]
    total = sum(exponentials)
    return [e / total for e in exponentials]


def linear(row: Tensor, parameters: dict[str, Tensor], name: str) -> Tensor:
    """One vector through the projection of that name: Wx + b."""
    return parameters[f"{name}.weight"].mv(row) + parameters[f"{name}.bias"]


def project_per_head(
    x: Tensor, parameters: dict[str, Tensor], name: str, num_heads: int
) -> list[list[Tensor]]:
    """T×C -> [position][head]: vectors of width d, head h at dimensions h·d, ..., h·d + d − 1."""
    d = x.size(-1) // num_heads
    projected = [linear(row, parameters, name) for row in x]
    return [[row[h * d : (h + 1) * d] for h in range(num_heads)] for row in projected]


def project_moved(move: Callable[[str, Tensor, int], Tensor]) -> Projection:
    """As `project_per_head`, with move(name, vector, position) in place of each vector."""

    def project(x, parameters, name, num_heads):
        rows = project_per_head(x, parameters, name, num_heads)
        return [[move(name, head, k) for head in row] for k, row in enumerate(rows)]

    return project


def bias_table(
    bias: Callable[[int, int, int], Tensor], heads: int, queries: int, keys: int, start: int = 0
) -> Tensor:
    """bias(head, i, j) for queries i = start, ..., start + queries − 1 and all keys j: H×T×S."""
    rows = [
        torch.stack([bias(h, i, j) for j in range(keys)])
        for h in range(heads)
        for i in range(start, start + queries)
    ]
    return torch.stack(rows).view(heads, queries, keys)


def biased(bias: Callable[..., Tensor], score_terms: int = 1) -> tuple[Callable, Callable]:
    """The scores and the `attend` of an encoding that adds a bias to the scores, and nothing else.

    bias: (head, i, j, positions, num_heads, **options) -> what is added to the score of i and j.
    """

    def positional_score(positions, num_heads, queries, keys, start=0, **options):
        """H×T×S, for queries at start, ..., start + queries − 1."""
        return bias_table(
            lambda h, i, j: bias(h, i, j, positions, num_heads, **options),
            num_heads,
            queries,
            keys,
            start,
        )

    return positional_score, attend_with(positional_score, score_terms)


def attend_with(positional_score: Callable[..., Tensor], score_terms: int = 1) -> Callable:
    """The `attend` of an encoding that adds `positional_score` to the scores."""

    def attend_biased(x, weights, positions, num_heads, padding=None, **options):
        length = x.size(1)
        added = positional_score(positions, num_heads, length, length, **options)
        return attend(x, weights, num_heads, padding, added, score_terms=score_terms)

    return attend_biased
