"""The hypotheses of benchmark/plan.md, each judged by the runs at full length."""

import math
from collections.abc import Callable, Iterable
from functools import partial
from itertools import combinations
from statistics import mean

from scipy import stats

from examples.shared.markdown import table
from examples.shared.results import Verdict
from examples.study.benchmark_plan import STARTED
from examples.study.benchmark_results import Finals, best_rate, by_loss, growth, paired
from examples.study.measures import Difference, difference, reaching
from examples.study.training import losses_of

#: Bits within which two encodings count as equal, and a lead counts as small.
EQUAL, SMALL = 0.03, 0.3
#: Bits below the final loss of `none` at which a model has left its plateau.
LEFT = 0.3
LEARNED = ("learned", STARTED)
RELATIVE = ("t5", "alibi", "rope", "deberta", "tupe_r")


ONE_SEED = Verdict(None, "one seed")
Judge = Callable[[Finals], Verdict]


def _apart(found: Finals, one: str, other: str) -> Difference | None:
    """The difference of two encodings, if it has an interval."""
    apart = paired(found[one].losses, found[other].losses)
    return difference(apart) if len(apart) > 1 else None


def better(one: str, other: str) -> Judge:
    """The difference is below 0 by more than its interval."""

    def judge(found: Finals) -> Verdict:
        if not (apart := _apart(found, one, other)):
            return ONE_SEED
        return Verdict(apart.mean < 0 and not apart.is_noise, apart.written(3))

    return judge


def _best(found: Finals, names: Iterable[str]) -> str:
    """The encoding with the lowest mean loss."""
    return min(names, key=lambda name: found[name].loss)


def within(bound: float, one: str, other: str) -> Judge:
    """The interval of the difference lies within the bound; refuted if it lies outside."""

    def judge(found: Finals) -> Verdict:
        if not (apart := _apart(found, one, other)):
            return ONE_SEED
        nearest, farthest = abs(apart.mean) - apart.half_width, abs(apart.mean) + apart.half_width
        holds = True if farthest <= bound else False if nearest > bound else None
        return Verdict(holds, apart.written(3))

    return judge


def plateau(found: Finals, name: str, floor: float | None = None) -> list[float]:
    """The share of the updates after which the plateau ends, by seed; infinite if it does not.

    `floor` is the loss of `none`, by default that of the same size.
    """
    curves = [losses_of(row) for row in found[name].rows]
    floor = found["none"].loss if floor is None else floor
    ends = [(reaching(curve, floor - LEFT), max(curve)) for curve in curves]
    return [math.inf if end is None else end / last for end, last in ends]


def in_words(shares: list[float]) -> str:
    """What `plateau` returns, in percent."""
    return ", ".join(f"{share:.0%}" if share < math.inf else "never" for share in shares)


def short_plateau(found: Finals) -> Verdict:
    """`learned` leaves its plateau within a tenth of the updates, in every seed."""
    shares = plateau(found, "learned")
    return Verdict(max(shares) <= 0.1, in_words(shares))


def against_learned(judge: Callable[[str, str], Judge]) -> Judge:
    """A judge of `tupe_a` and `learned`, which begins with sinusoids where that is better."""

    def judged(found: Finals) -> Verdict:
        other = _best(found, LEARNED)
        verdict = judge("tupe_a", other)(found)
        return verdict._replace(figures=f"{verdict.figures} (`{other}`)")

    return judged


def best(found: Finals) -> Verdict:
    """`deberta` has the lowest mean loss."""
    first = _best(found, found)
    return Verdict(first == "deberta", f"the lowest: `{first}`")


def worst_relative(found: Finals) -> Verdict:
    """`alibi` has the highest mean loss of the relative encodings."""
    last = max(RELATIVE, key=lambda name: found[name].loss)
    return Verdict(last == "alibi", f"the highest: `{last}`")


def above_the_floor(found: Finals) -> Verdict:
    """Every encoding is better than `none` by more than 0.5 bits."""
    gains = {n: found["none"].loss - own.loss for n, own in found.items() if n != "none"}
    least = min(gains, key=lambda name: gains[name])
    return Verdict(gains[least] > 0.5, f"the smallest gain: {gains[least]:.3f} (`{least}`)")


def blimp_follows(found: Finals) -> Verdict:
    """Spearman's correlation of accuracy on BLiMP and negative loss is at least 0.8.

    Undecided if its 95 % interval over the encodings (Fisher's z) contains 0.8.
    """
    names = [name for name, own in found.items() if all("blimp" in row for row in own.rows)]
    if len(names) < len(found):
        return Verdict(None, "BLiMP not run")
    accuracy = [mean(row["blimp"]["mean"] for row in found[name].rows) for name in names]
    loss = [-found[name].loss for name in names]
    ranks = stats.pearsonr(stats.rankdata(accuracy), stats.rankdata(loss))
    low, high = ranks.confidence_interval()
    holds = None if low <= 0.8 <= high else bool(low > 0.8)
    return Verdict(holds, f"{ranks.statistic:.2f} ({low:.2f} to {high:.2f})")


def reads_longer(found: Finals) -> Verdict:
    """`tupe_r` by distance does not lose at 16 times the length; `rope` without a window does."""
    tupe_r, rope = growth(found["tupe_r"], "toeplitz"), growth(found["rope"])
    said = f"`tupe_r` {tupe_r.mean:+.3f}, `rope` {rope.mean:+.3f}"
    return Verdict(tupe_r.mean <= 0 < rope.mean, said)


def same_order(small: Finals, large: Finals) -> Verdict:
    """No two encodings change places by more than the range of the seeds of each.

    Encodings with one seed are left out.
    """
    names = [name for name in small if name in large]
    done = [name for name in names if min(len(small[name].losses), len(large[name].losses)) > 1]
    if len(done) < 2:
        return Verdict(None, "not run")
    swapped, clearly = [], False
    for pair in combinations(done, 2):
        leads, sure = [], []
        for found in (small, large):
            one, other = (list(found[name].losses.values()) for name in pair)
            leads.append(mean(one) - mean(other))
            sure.append(abs(leads[-1]) > max(max(own) - min(own) for own in (one, other)))
        if leads[0] * leads[1] < 0:
            said = " and ".join(f"{lead:+.3f}" for lead in leads)
            swapped.append(f"`{pair[0]}` minus `{pair[1]}`: {said}")
            clearly |= all(sure)
    holds = None if swapped and not clearly else not swapped
    figures = swapped or [" < ".join(f"`{name}`" for name in by_loss(large) if name in done)]
    if alone := [f"`{name}`" for name in names if name not in done]:
        figures.append(f"one seed: {', '.join(alone)}")
    return Verdict(holds, "; ".join(figures))


#: Name, statement, encodings that are needed, and judge.
HYPOTHESES: tuple[tuple[str, str, tuple[str, ...], Judge], ...] = (
    (
        "H1",
        "`learned` leaves its plateau within a tenth of the updates",
        ("learned", "none"),
        short_plateau,
    ),
    (
        "H2",
        "`tupe_a` is better than `learned` with the better start",
        ("tupe_a", *LEARNED),
        against_learned(better),
    ),
    (
        "H3",
        f"that lead is smaller than {SMALL} bits",
        ("tupe_a", *LEARNED),
        against_learned(partial(within, SMALL)),
    ),
    ("H4", "`tupe_r` is better than `t5`", ("tupe_r", "t5"), better("tupe_r", "t5")),
    (
        "H5",
        "`tupe_r` and `tupe_a` are equal",
        ("tupe_r", "tupe_a"),
        within(EQUAL, "tupe_r", "tupe_a"),
    ),
    (
        "H6",
        "`rope` and `tupe_r` are equal",
        ("rope", "tupe_r"),
        within(EQUAL, "rope", "tupe_r"),
    ),
    ("H7", "`deberta` is the best", ("learned", *RELATIVE), best),
    ("H8", "`alibi` is the worst of the relative encodings", RELATIVE, worst_relative),
    ("H9", "every encoding gains more than 0.5 bits", ("none", *RELATIVE), above_the_floor),
    ("H11", "BLiMP follows the loss", ("none", "learned", *RELATIVE), blimp_follows),
    (
        "H12",
        "`tupe_r` reads 16 times its length, `rope` does not",
        ("tupe_r", "rope"),
        reads_longer,
    ),
)


def needs_warmup(rates: dict[float, float], short: dict[float, float]) -> Verdict:
    """`tupe_r` at its best rate loses more than 0.1 bits with a warm-up of a twentieth.

    Both give the loss by rate: with a warm-up of a fifth of the updates, and of a twentieth.
    """
    if not rates or (best := best_rate(rates)) not in short:
        return Verdict(None, "not run")
    return Verdict(
        short[best] - rates[best] > 0.1,
        f"at {best:g}, seed 1: {rates[best]:.3f}, {short[best]:.3f}",
    )


def waits(found: Finals, floor: float) -> Verdict:
    """`learned` leaves its plateau after a fifth of the updates, in every seed."""
    shares = plateau(found, "learned", floor)
    return Verdict(min(shares) > 0.2, in_words(shares))


def on_modern(found: Finals, modern: Finals, warmup: Verdict) -> list[list[str]]:
    """The rows of part 6."""
    order = same_order(found, modern)
    ready = "learned" in modern and "none" in found
    late = waits(modern, found["none"].loss) if ready else Verdict(None, "not run")
    verdicts = {
        "the layers of ModernBERT have the same order": order,
        "`tupe_r` needs its long warm-up on them": warmup,
        "`learned` waits on its plateau on them": late,
    }
    return [
        [f"H{i}", said, each.word, each.figures]
        for i, (said, each) in enumerate(verdicts.items(), 13)
    ]


def judged(found: Finals, larger: Finals, modern: Finals, warmup: Verdict) -> list[str]:
    """The table of hypotheses.

    Args:
        found: the runs of the first size.
        larger: those of the larger one, for H10.
        modern: those on the layers of ModernBERT.
        warmup: what `needs_warmup` returns.
    """
    cells = []
    for name, said, needs, judge in HYPOTHESES:
        absent = [each for each in needs if each not in found]
        verdict = Verdict(None, "not run") if absent else judge(found)
        cells.append([name, said, verdict.word, verdict.figures])
    order, said = same_order(found, larger), "the larger size has the same order"
    cells.insert(9, ["H10", said, order.word, order.figures])
    cells += on_modern(found, modern, warmup)
    return ["## Hypotheses", "", *table(["", "hypothesis", "verdict", "figures"], cells), ""]
