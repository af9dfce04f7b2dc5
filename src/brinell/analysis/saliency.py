"""Measures of an importance map: does it lie on the object, and does the model follow it.

Plain functions of arrays.

A map holds a number for each place of an input, higher for more important places. Ground truth
holds 1 for the object, 0 for the background and `IGNORED` for undecided places. Only the order
within a map has a meaning, so maps are compared by rank. Equal values count in the order of their
places, so a constant map scores as its first places do.
"""

import numpy as np

from brinell.core.record import Array

IGNORED = 255
"""Places of a ground truth that count neither way, such as the outline of a pet."""


def largest(values: Array, count: int) -> Array:
    """(*places) bool: the `count` places of the largest values, ties in their order."""
    selected = np.zeros(values.size, dtype=bool)
    selected[np.argsort(-values.ravel(), kind="stable")[:count]] = True
    return selected.reshape(values.shape)


def without_ignored(values: Array, truth: Array) -> tuple[Array, Array]:
    """The map's values and the object (both flat), without the places that are ignored."""
    counts = truth != IGNORED
    return values[counts], truth[counts] == 1


def at_equal_area(values: Array, truth: Array) -> tuple[float, float]:
    """Dice and IoU of the places that the map holds largest, as many as the object has."""
    values, object_ = without_ignored(values, truth)
    mask = largest(values, int(object_.sum()))
    intersection = int((mask & object_).sum())
    union = int((mask | object_).sum())
    if not union:
        return 0.0, 0.0
    return 2 * intersection / (intersection + union), intersection / union


def pointing(values: Array, truth: Array) -> bool:
    """True if the largest value lies on the object (Zhang et al. 2016, without their tolerance).

    The first of several largest values decides.
    """
    values, object_ = without_ignored(values, truth)
    return bool(object_[int(values.argmax())])


def area_under(curve: Array) -> float:
    """Area under values at evenly spaced shares from 0 to 1, by the trapezoid rule."""
    return float((curve[1:] + curve[:-1]).mean() / 2)
