"""Power of a verification that repeats drawn samples: it notices false statements about them, and
more early breaks than chance explains.
"""

from collections.abc import Sequence
from math import ceil, comb

from brinell.core.intervals import wilson

CHANCE = 1e-3
"""A random model is refused if its drawn samples break this improbably more often earlier in the
repetition than later."""
MISSED = 0.05
"""A verification decides if it misses a change that it ought to see with this probability at most;
of a random model, if earlier breaks are no less probable than that."""


def change_to_see(robust: Sequence[int], totals: Sequence[int]) -> int:
    """How many samples make a change by the width of the printed interval of a robust accuracy:
    that of the largest budget at which so many count as robust; else as many as do at any.

    Args:
        robust: samples that count as robust, at each budget in ascending order.
        totals: those that were totals, likewise.
    """
    for count, n in zip(reversed(robust), reversed(totals), strict=True):
        interval = wilson(count, n)
        change = 1 if interval is None else ceil(n * (interval.high - interval.low))
        if change <= count:
            return change
    return max(robust, default=0)


def draws_to_see(samples: int, forged: int) -> int:
    """The fewest draws, of `samples`, that miss `forged` false ones with probability `MISSED` at
    most.
    """
    draws = range(samples + 1)
    return next((k for k in draws if miss_probability(samples, k, forged) <= MISSED), 0)


def miss_probability(samples: int, draws: int, forged: int, turning: float | None = None) -> float:
    """Probability that a repetition of `draws` samples, of `samples`, misses `forged` false ones.

    One that is drawn is noticed; but of a random model, where a share `turning` of the true ones
    breaks otherwise by chance, only where more break earlier than `most_earlier` of `MISSED`.
    """
    if turning is None:
        return comb(samples - forged, draws) / comb(samples, draws)

    probability = 0.0
    # By how many of the false ones are drawn.
    for hits in range(max(0, draws - samples + forged), min(forged, draws) + 1):
        turned = round(turning * (draws - hits))
        # All hits break earlier, and each true one that turns does so by the toss of a coin.
        most = most_earlier(hits + turned, MISSED)
        passing = sum(comb(turned, earlier) for earlier in range(most - hits + 1)) / 2**turned
        probability += (
            passing
            * comb(forged, hits)
            * comb(samples - forged, draws - hits)
            / comb(samples, draws)
        )
    return probability


def most_earlier(turned: int, chance: float = CHANCE) -> int:
    """How many samples, of those that break at another budget than recorded, may break at a smaller
    one by a sign test, which refuses what is less probable than `chance`.
    """
    # `tail` counts those of all 2**turned outcomes in which at least `most` break earlier.
    most, tail = turned, 1
    while tail < chance * 2**turned:
        most -= 1
        tail += comb(turned, most)
    return most
