"""Nearest neighbours against the plain definition."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from brinell.core.reference import nearest


def plainly(x, y, reference, known, norm, itself=None):
    """All differences at once."""
    gap = np.abs(x[:, None].astype(np.float64) - reference[None])
    size = np.sqrt((gap**2).sum(2)) if norm == "l2" else gap.max(2)
    if itself is not None:
        size[np.arange(len(x)), itself] = np.inf
    alike = y[:, None] == known[None]
    return np.where(alike, size, np.inf), np.where(alike, np.inf, size)


@pytest.mark.parametrize("norm", ["l2", "linf"])
@settings(max_examples=40)
@given(seed=st.integers(0, 2**16), n=st.integers(1, 90), m=st.integers(1, 150), d=st.integers(1, 100), grey=st.booleans())
def test_it_is_exact(norm, seed, n, m, d, grey):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 4, (n + m, d)) / 3 if grey else rng.random((n + m, d))  # grey: many ties
    x, reference = values[:n].astype(np.float32), values[n:].astype(np.float32)
    y, known = rng.integers(0, 3, n), rng.integers(0, 3, m)
    found = nearest(*map(torch.from_numpy, (x, y, reference, known)), norm)
    for size, value, at in zip(plainly(x, y, reference, known, norm), found[::2], found[1::2], strict=True):
        least = size.min(1)
        np.testing.assert_allclose(value, least, rtol=1e-5, atol=1e-6)
        assert ((at == -1) == np.isinf(least)).all()
        some = at >= 0
        np.testing.assert_allclose(size[some, at[some]], least[some], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_a_sample_of_the_reference_is_no_neighbour_of_its_own(norm):
    rng = np.random.default_rng(0)
    x, y = rng.random((60, 80)).astype(np.float32), rng.integers(0, 4, 60)
    at = torch.tensor([3, 7, 59])
    tensors = torch.from_numpy(x), torch.from_numpy(y)
    found = nearest(tensors[0][at], tensors[1][at], *tensors, norm, itself=at)
    same, other = plainly(x[at], y[at], x, y, norm, itself=at.numpy())
    np.testing.assert_allclose(found.same, same.min(1), rtol=1e-5)
    np.testing.assert_allclose(found.other, other.min(1), rtol=1e-5)
    assert (found.same > 0).all() and not (found.same_at == at.numpy()).any()


def test_a_class_of_one_has_no_neighbour():
    x, y = torch.rand(3, 5), torch.tensor([0, 1, 1])
    found = nearest(x[:1], y[:1], x, y, "l2", itself=torch.tensor([0]))
    assert found.same.tolist() == [np.inf] and found.same_at.tolist() == [-1] and np.isfinite(found.other).all()


def test_another_norm_is_refused():
    with pytest.raises(ValueError, match="l2 or linf"):
        nearest(torch.rand(1, 2), torch.zeros(1).long(), torch.rand(1, 2), torch.zeros(1).long(), "l1")
