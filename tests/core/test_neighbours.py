"""Nearest neighbours against the plain definition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brinell.core.neighbours import Reference


def plainly(x, y, reference, reference_labels, norm, itself=None):
    """All differences at once."""
    gap = np.abs(x[:, None].astype(np.float64) - reference[None])
    size = {
        "l2": lambda: np.sqrt((gap**2).sum(2)),
        "linf": lambda: gap.max(2),
        "l1": lambda: gap.sum(2),
    }[norm]()
    if itself is not None:
        size[np.arange(len(x)), itself] = np.inf
    alike = y[:, None] == reference_labels[None]
    return np.where(alike, size, np.inf), np.where(alike, np.inf, size)


@pytest.mark.parametrize("norm", ["l2", "linf", "l1"])
@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**16),
    n=st.integers(1, 90),
    m=st.integers(1, 150),
    d=st.integers(1, 100),
    grey=st.booleans(),
)
def test_it_is_exact(norm, seed, n, m, d, grey):
    rng = np.random.default_rng(seed)
    values = (
        rng.integers(0, 4, (n + m, d)) / 3 if grey else rng.random((n + m, d))
    )  # grey: many ties
    x, reference = values[:n].astype(np.float32), values[n:].astype(np.float32)
    y, reference_labels = rng.integers(0, 3, n), rng.integers(0, 3, m)
    neighbours = Reference(reference, reference_labels).nearest(norm, x, y)
    sides = (
        (neighbours.same_class, neighbours.same_at),
        (neighbours.other_class, neighbours.other_at),
    )
    for size, (value, indices) in zip(
        plainly(x, y, reference, reference_labels, norm), sides, strict=True
    ):
        least = size.min(1)
        np.testing.assert_allclose(value, least, rtol=1e-5, atol=1e-6)
        assert ((indices == -1) == np.isinf(least)).all()
        present = indices >= 0
        np.testing.assert_allclose(
            size[present, indices[present]], least[present], rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_a_sample_of_the_reference_is_no_neighbour_of_its_own(norm):
    rng = np.random.default_rng(0)
    x, y = rng.random((60, 80)).astype(np.float32), rng.integers(0, 4, 60)
    indices = np.array([3, 7, 59])
    neighbours = Reference(x, y).nearest(norm, x[indices], y[indices], itself=indices)
    same_class, other_class = plainly(x[indices], y[indices], x, y, norm, itself=indices)
    np.testing.assert_allclose(neighbours.same_class, same_class.min(1), rtol=1e-5)
    np.testing.assert_allclose(neighbours.other_class, other_class.min(1), rtol=1e-5)
    assert (neighbours.same_class > 0).all() and not (neighbours.same_at == indices).any()


def test_a_class_of_one_has_no_neighbour():
    x, y = np.eye(3, 5, dtype=np.float32), np.array([0, 1, 1])
    neighbours = Reference(x, y).nearest("l2", x[:1], y[:1], itself=np.array([0]))
    assert (
        neighbours.same_class.tolist() == [np.inf]
        and neighbours.same_at.tolist() == [-1]
        and np.isfinite(neighbours.other_class).all()
    )
