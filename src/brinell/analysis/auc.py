"""Area under a ROC curve with its interval, and the AUC of pairs of samples by their distance.

DeLong, DeLong & Clarke-Pearson 1988, Comparing the areas under two or more correlated receiver
operating characteristic curves: the variance is that of the placements, the share of the one group
that each value of the other exceeds. With few values it is too small near 1, so it is at least that
of Hanley & McNeil (1982). The interval is the score interval (Wilson 1927) of a proportion with
that variance, which does not collapse at 1.
"""

import numpy as np

from brinell.core.intervals import CONFIDENCE, Interval, score_interval
from brinell.core.record import Array


def auc(clean: Array, adversarial: Array) -> float | None:
    """Probability that an adversarial score exceeds a clean one, with ties counted half.

    None if either array is empty.
    """
    if not (len(clean) and len(adversarial)):
        return None
    return float(_placements(clean, adversarial).mean())


def auc_interval(
    clean: Array, adversarial: Array, confidence: float = CONFIDENCE
) -> Interval | None:
    """Interval of `auc`, of scores (n,) of clean inputs and (m,) of adversarial ones.

    None with fewer than two of either kind.
    """
    from scipy.special import stdtrit

    n = len(clean)
    m = len(adversarial)
    if min(m, n) < 2:
        return None

    placements = (_placements(clean, adversarial), 1 - _placements(adversarial, clean))
    area = float(placements[0].mean())
    parts = [float(values.var(ddof=1)) / len(values) for values in placements]
    delong = sum(parts)

    # Hanley & McNeil: the variance of an area if both kinds of scores are exponential.
    q1 = area / (2 - area)
    q2 = 2 * area**2 / (1 + area)
    exponential = area * (1 - area) + (m - 1) * (q1 - area**2) + (n - 1) * (q2 - area**2)
    variance = max(delong, max(exponential, 0.0) / (m * n))

    # Degrees of freedom by Welch and Satterthwaite, from the parts of the variance.
    dof: float = min(m, n) - 1
    if delong:
        terms = (
            part**2 / (len(values) - 1) for part, values in zip(parts, placements, strict=True)
        )
        dof = delong**2 / sum(terms)
    # As many samples as would give a plain share of this size the same variance.
    # Groups that do not overlap may be as alike inside as they can be: each then counts as one of
    # the smaller group.
    effective = area * (1 - area) / variance if variance else min(m, n)
    return score_interval(area, effective, float(stdtrit(dof, (1 + confidence) / 2)))


def _placements(clean: Array, adversarial: Array) -> Array:
    """(m,) float64: share of the clean scores that each adversarial one exceeds, ties half."""
    ordered = np.sort(clean)
    lower = np.searchsorted(ordered, adversarial, "left")
    upper = np.searchsorted(ordered, adversarial, "right")
    return np.asarray((lower + upper) / 2 / len(clean), dtype=np.float64)


def pair_auc(distances: Array, labels: Array) -> tuple[float, Array]:
    """Share of pairs of pairs in which the pair within a class is nearer than the other.

    Ties count half.

    Pairs share samples, so the second value has the share as its mean, and its spread over the
    samples is that of the share (the infinitesimal jackknife): `means.mean_difference` of two of
    them gives the interval of a gain.

    Args:
        distances: (n (n - 1) / 2,) distance of each pair, in the order of `numpy.triu_indices(n,
            1)`.
        labels: (n,) class of each sample.
    """
    n = len(labels)
    first, second = np.triu_indices(n, 1)
    is_same_class = labels[first] == labels[second]
    if is_same_class.all() or not is_same_class.any():
        raise ValueError("separation takes pairs within a class and pairs between classes")

    # Share of the pairs of the other kind on whose right side each pair lies.
    share = np.empty(len(distances))
    share[is_same_class] = 1 - _placements(distances[~is_same_class], distances[is_same_class])
    share[~is_same_class] = _placements(distances[is_same_class], distances[~is_same_class])
    value = float(share[is_same_class].mean())

    # The influence of each pair on the share, and of each sample by its pairs.
    counts = np.where(is_same_class, is_same_class.sum(), (~is_same_class).sum())
    influence = (share - value) / counts
    of_samples = np.bincount(first, influence, n) + np.bincount(second, influence, n)
    return value, value + n * of_samples
