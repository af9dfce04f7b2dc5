"""Class means and nearest neighbours against every pair computed by SciPy, whatever the blocks."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from brinell.core import neighbours
from brinell.core.neighbours import Reference, class_means
from brinell.studies.epsilon import run

METRICS = {"linf": "chebyshev", "l2": "euclidean", "l1": "cityblock"}


def distances(a, b, norm):
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return (
        (a[:, None] != b[None]).sum(2).astype(float) if norm == "l0" else cdist(a, b, METRICS[norm])
    )


def truth(x, y, z, labels_of_z, norm, skip_itself):
    size = distances(x, z, norm)
    alike = y[:, None] == labels_of_z[None, :]
    same_class = np.where(
        alike & ~(np.eye(len(y), len(labels_of_z), dtype=bool) & skip_itself), size, np.inf
    )
    return same_class.min(1), np.where(alike, np.inf, size).min(1)


def cloud(n, d, classes, seed, bytes_=False):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n).astype(np.int64)
    x = rng.random((n, d)) * 0.5 + 0.5 * (y / max(classes - 1, 1))[:, None]
    x[rng.random((n, d)) < 0.3] = 0  # a background
    return (np.rint(x * 255).astype(np.uint8) if bytes_ else x.astype(np.float32)), y


@given(
    st.integers(2, 40),
    st.integers(1, 9),
    st.integers(1, 12),
    st.sampled_from(["linf", "l2", "l1", "l0"]),
    st.integers(0, 99),
)
@settings(max_examples=25, deadline=None)
def test_any_blocks_give_every_pair(n, classes, d, norm, seed):
    x, y = cloud(n, d, classes, seed)
    run.BLOCK = 7
    try:
        means = class_means(torch.from_numpy(x), y, classes, norm)
    finally:
        run.BLOCK = 1024
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
def test_searches_find_the_nearest(norm, monkeypatch):
    """Within the set itself, whose samples are no neighbours of their own, and in another set."""
    monkeypatch.setattr(neighbours, "ROWS", 16)
    for n, d, bytes_, itself in (
        (260, 150, True, True),
        (260, 150, False, True),
        (50, 80, False, False),
    ):
        x, y = cloud(n, d, 3, 1, bytes_)
        z, z_labels = (x, y) if itself else cloud(120, d, 3, 3)
        if itself:
            y[0] = 3  # a class of one
        places, reference = {"itself": np.arange(n)} if itself else {}, Reference(z, z_labels)
        nearest = reference.nearest(norm, x, y, reference.nearest("l2", x, y, **places), **places)
        same_class, other_class = truth(x, y, z, z_labels, norm, itself)
        np.testing.assert_allclose(nearest.same_class, same_class, rtol=1e-5)
        np.testing.assert_allclose(nearest.other_class, other_class, rtol=1e-5)
        assert (z_labels[nearest.other_at] != y).all() and (not itself or nearest.same_at[0] == -1)
        size = distances(x, z, norm)[np.arange(n), nearest.other_at]
        np.testing.assert_allclose(size, other_class, rtol=1e-5)
