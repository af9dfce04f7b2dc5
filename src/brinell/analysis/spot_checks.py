"""What a verification that repeats drawn samples can notice: false statements about samples, and
more early breaks than chance explains.
"""

from math import comb

CHANCE = 1e-3
"""A random model is refused if its drawn samples break this improbably more often earlier in the
repetition than later."""


def miss_probability(samples: int, draws: int, forged: int, turning: float | None = None) -> float:
    """Probability that a repetition of `draws` samples, of `samples`, misses `forged` false ones.

    One that is drawn is noticed; but of a random model, where a share `turning` of the true ones
    breaks otherwise by chance, only where more break earlier than `most_earlier`.
    """
    probability = 0.0
    # By how many of the false ones are drawn.
    for hits in range(max(0, draws - samples + forged), min(forged, draws) + 1):
        turned = round((turning or 0.0) * (draws - hits))
        most = 0 if turning is None else most_earlier(hits + turned)
        passing = sum(comb(turned, earlier) for earlier in range(most - hits + 1)) / 2**turned
        probability += (
            passing
            * comb(forged, hits)
            * comb(samples - forged, draws - hits)
            / comb(samples, draws)
        )
    return probability


def most_earlier(turned: int) -> int:
    """How many samples, of those that break at another budget than recorded, may break at a smaller
    one by a sign test.
    """
    most, tail = turned, 1
    while tail < CHANCE * 2**turned:
        most -= 1
        tail += comb(turned, most)
    return most
