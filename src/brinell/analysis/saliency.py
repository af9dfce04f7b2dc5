"""Measures of an importance map: does it lie on the object, and does the model follow it. Plain functions of arrays.

A map holds a number for each place of an input, higher for more important places. Ground truth holds 1 for the object, 0 for the
background and `IGNORED` for undecided places. Only the order within a map has a meaning, so maps are compared by rank. Equal
values count in the order of their places, so a constant map scores as its first places do.
"""

import numpy as np

from brinell.analysis.ranks import spearman
from brinell.core.record import Array

IGNORED = 255
"""Places of a ground truth that count neither way, such as the outline of a pet."""


def largest(values: Array, count: int) -> Array:
    """(*places) bool: the `count` places of the largest values, ties in the order of their places."""
    selected = np.zeros(values.size, dtype=bool)
    selected[np.argsort(-values.ravel(), kind="stable")[:count]] = True
    return selected.reshape(values.shape)


def without_ignored(values: Array, truth: Array) -> tuple[Array, Array]:
    """The map's values and the object (both flat), without the places that are ignored."""
    counts = truth != IGNORED
    return values[counts], truth[counts] == 1


def overlap(mask: Array, truth: Array) -> tuple[float, float]:
    """Dice and intersection over union of a binary mask with the object; both 0 where both are empty."""
    mask, object_ = without_ignored(mask, truth)
    intersection, union = int((mask & object_).sum()), int((mask | object_).sum())
    return (2 * intersection / (intersection + union), intersection / union) if union else (0.0, 0.0)


def at_equal_area(values: Array, truth: Array) -> tuple[float, float]:
    """Dice and intersection over union of the places that the map holds largest, as many as the object has."""
    values, object_ = without_ignored(values, truth)
    return overlap(largest(values, int(object_.sum())), object_.astype(np.uint8))


def best_iou(values: Array, truth: Array) -> float:
    """The largest intersection over union of `values >= t` with the object, over all thresholds t."""
    values, object_ = without_ignored(values, truth)
    order = np.argsort(-values, kind="stable")
    hits, size = np.cumsum(object_[order]), np.arange(1, len(order) + 1)
    is_last = np.append(values[order][1:] != values[order][:-1], True)  # a threshold takes all equal values or none
    best: float = (hits / (size + object_.sum() - hits))[is_last].max(initial=0.0)
    return float(best)


def pointing(values: Array, truth: Array) -> bool:
    """True if the largest value lies on the object (Zhang et al. 2016, Top-down neural attention, without their tolerance).

    The first of several largest values decides.
    """
    values, object_ = without_ignored(values, truth)
    return bool(object_[int(values.argmax())])


def energy(values: Array, truth: Array) -> float:
    """Share of the map's mass on the object, the smallest value counted as 0 (Wang et al. 2020, Score-CAM, section 4.4).

    A map of one value has its mass spread evenly.
    """
    values, object_ = without_ignored(values, truth)
    mass = values.astype(np.float64) - values.min()
    return float(mass[object_].sum() / mass.sum()) if mass.sum() > 0 else float(object_.mean())


def area_under(curve: Array) -> float:
    """Area under values at evenly spaced shares from 0 to 1, by the trapezoid rule."""
    return float((curve[1:] + curve[:-1]).mean() / 2)


def first_share(flags: Array) -> float | None:
    """The first of evenly spaced shares, 0 to 1, at which something is reached; None for never."""
    positions = np.flatnonzero(flags)
    return float(positions[0] / (len(flags) - 1)) if len(positions) else None


def infidelity(values: Array, hidden: Array, drops: Array) -> float | None:
    """Error of a map as a prediction of what hidden places change: 0 if perfect, 1 if no better than predicting no change.

    Infidelity (Yeh et al. 2019, On the (in)fidelity and sensitivity of explanations, definition 2.1) with the best scale of the
    map, over that of a map of zeros. Scale and baseline have no meaning in maps of unsigned importance, so that without both it
    would compare units.

    Args:
        values: (*places) a map.
        hidden: (k, *places) what share of each place a perturbation hides.
        drops: (k,) by how much the class's probability falls.

    Returns:
        In [0, 1]; None where nothing changed the answer.
    """
    predicted = hidden.reshape(len(hidden), -1).astype(np.float64) @ (values.ravel().astype(np.float64) - values.min())
    total, of_map = float(drops @ drops), float(predicted @ predicted)
    if total <= 0:
        return None
    return 1.0 if of_map <= 0 else float(np.clip(1 - (predicted @ drops) ** 2 / (total * of_map), 0, 1))


def rank_correlation(a: Array, b: Array) -> float:
    """Spearman's: the correlation of ranks, equal values sharing theirs; 0 where a map has one value alone."""
    return spearman(a.ravel(), b.ravel()) or 0.0


def change_of(before: Array, after: Array) -> float | None:
    """Length of the change of a map over its own length; None for a map of zeros."""
    length = float(np.linalg.norm(before))
    return float(np.linalg.norm(after - before)) / length if length > 0 else None


def entropy(values: Array, bins: int = 100) -> float:
    """Entropy, in nats, of the histogram of a map over its own range: 0 for a map of one value (Hedstroem et al. 2024, eMPRT)."""
    span = float(values.max() - values.min())
    if span <= 0:
        return 0.0
    counts, _ = np.histogram((values - values.min()) / span, bins=bins, range=(0, 1))
    shares = counts[counts > 0] / values.size
    return float(-(shares * np.log(shares)).sum())
