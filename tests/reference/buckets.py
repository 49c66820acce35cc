"""T5's buckets of relative positions (Raffel et al. 2019), in exact fractions."""

from fractions import Fraction


def bucket(distance: int, num_buckets: int, max_distance: int, bidirectional: bool = True) -> int:
    """The bucket of distance j − i: the upper half of the buckets for keys to the right.

    One-sided: all buckets for keys to the left; keys to the right count as distance 0.
    """
    if bidirectional:
        side = num_buckets // 2
        return (side if distance > 0 else 0) + one_side(abs(distance), side, max_distance)
    return one_side(max(-distance, 0), num_buckets, max_distance)


def one_side(n: int, buckets: int, max_distance: int) -> int:
    """e + ⌊log(n/e) / log(max_distance/e) · (buckets − e)⌋ from e = buckets/2 on, else n itself.

    The floor is the largest k with k ≤ log(n/e) / log(m/e) · L, that is (m/e)^k ≤ (n/e)^L.
    """
    e = buckets // 2
    if n < e:
        return n
    k = 0
    while e + k + 1 < buckets and (
        Fraction(max_distance, e) ** (k + 1) <= Fraction(n, e) ** (buckets - e)
    ):
        k += 1
    return e + k
