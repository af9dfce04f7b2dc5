"""Class means and nearest neighbours against every pair computed by SciPy, whatever the blocks."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from brinell.core import neighbours
from brinell.core.neighbours import Reference
from brinell.studies.epsilon import class_distances
from brinell.studies.epsilon.class_distances import class_means

METRICS = {"linf": "chebyshev", "l2": "euclidean", "l1": "cityblock"}


def distances(a, b, norm):
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return (a[:, None] != b[None]).sum(2).astype(float) if norm == "l0" else cdist(a, b, METRICS[norm])


def truth(x, y, z, labels_of_z, norm, skip_itself):
    size = distances(x, z, norm)
    alike = y[:, None] == labels_of_z[None, :]
    same_class = np.where(alike & ~(np.eye(len(y), len(labels_of_z), dtype=bool) & skip_itself), size, np.inf)
    return same_class.min(1), np.where(alike, np.inf, size).min(1)


def cloud(n, d, classes, seed, bytes_=False):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n).astype(np.int64)
    x = rng.random((n, d)) * 0.5 + 0.5 * (y / max(classes - 1, 1))[:, None]
    x[rng.random((n, d)) < 0.3] = 0  # a background
    return (np.rint(x * 255).astype(np.uint8) if bytes_ else x.astype(np.float32)), y


def test_three_points_by_hand():
    x, y = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]), np.array([0, 0, 1])
    means = class_means(x, y, 2, "l2")
    assert means[0] == pytest.approx([5, (1 + 18**0.5) / 2]) and means[1, 0] == means[0, 1]
    assert np.isnan(means[1, 1]), "one sample makes no pair"
    nearest = Reference(x.numpy(), y).nearest("l2", x.numpy(), y, itself=np.arange(3))
    assert nearest.same_class.tolist() == [5, 5, np.inf] and nearest.same_at.tolist() == [1, 0, -1]
    assert nearest.other_class == pytest.approx([1, 18**0.5, 1]) and nearest.other_at.tolist() == [2, 2, 0]
    assert class_means(x, y, 2, "linf")[0] == pytest.approx([4, 2])
    assert class_means(x, y, 2, "l1")[0] == pytest.approx([7, 3.5])
    assert class_means(x, y, 2, "l0")[0] == pytest.approx([2, 1.5])


@given(st.integers(2, 40), st.integers(1, 9), st.integers(1, 12), st.sampled_from(["linf", "l2", "l1", "l0"]), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_any_blocks_give_every_pair(n, classes, d, norm, seed):
    x, y = cloud(n, d, classes, seed)
    class_distances.BLOCK = 7
    try:
        means = class_means(torch.from_numpy(x), y, classes, norm)
    finally:
        class_distances.BLOCK = 1024
    size = distances(x, x, norm)
    # Squares lose half their digits in the difference where two samples all but coincide.
    rounding = 1e-5 + 2 * float(np.sqrt(np.finfo(np.float32).eps * (x**2).sum(1).max()))
    for a in range(classes):
        for b in range(classes):
            block = size[np.ix_(y == a, y == b)]
            count = block.size - (a == b) * len(block)
            if count:
                assert means[a, b] == pytest.approx(block.sum() / count, abs=rounding)
            else:
                assert np.isnan(means[a, b])


@pytest.mark.parametrize("norm", ["linf", "l2", "l1", "l0"])
@pytest.mark.parametrize("bytes_", [True, False])
def test_searches_find_the_nearest(norm, bytes_, monkeypatch):
    monkeypatch.setattr(neighbours, "ROWS", 16)
    x, y = cloud(260, 150, 3, 1, bytes_)
    y[0] = 3  # a class of one
    first = Reference(x, y).nearest("l2", x, y, itself=np.arange(len(x)))
    nearest = Reference(x, y).nearest(norm, x, y, first, itself=np.arange(len(x)))
    same_class, other_class = truth(x, y, x, y, norm, True)
    np.testing.assert_allclose(nearest.same_class, same_class, rtol=1e-5)
    np.testing.assert_allclose(nearest.other_class, other_class, rtol=1e-5)
    assert nearest.same_at[0] == -1 and np.isinf(nearest.same_class[0])
    indices = nearest.other_at
    assert (y[indices] != y).all()
    np.testing.assert_allclose(distances(x, x, norm)[np.arange(len(x)), indices], other_class, rtol=1e-5)


@pytest.mark.parametrize("norm", ["linf", "l2", "l1", "l0"])
def test_neighbours_in_another_set(norm):
    x, y = cloud(50, 80, 3, 2)
    z, labels_of_z = cloud(120, 80, 3, 3)
    reference = Reference(z, labels_of_z)
    nearest = reference.nearest(norm, x, y, reference.nearest("l2", x, y))
    same_class, other_class = truth(x, y, z, labels_of_z, norm, False)
    np.testing.assert_allclose(nearest.same_class, same_class, rtol=1e-5)
    np.testing.assert_allclose(nearest.other_class, other_class, rtol=1e-5)
