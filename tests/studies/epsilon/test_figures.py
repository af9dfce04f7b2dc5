"""Recommendations against distances between all pairs of random samples."""

import math

import numpy as np
import pytest

import brinell

DISTANCES = {
    "linf": lambda a, b: np.abs(a - b).max(),
    "l2": lambda a, b: np.sqrt(((a - b) ** 2).sum()),
    "l1": lambda a, b: np.abs(a - b).sum(),
    "l0": lambda a, b: (a != b).sum(),
}


def rounded(eps, norm):
    """Rounded down to three digits, or to a whole number."""
    if norm == "l0" or eps == 0:
        return float(math.floor(eps))
    digits = 2 - math.floor(math.log10(eps))
    return math.floor(eps * 10**digits) / 10**digits


def check_norm(result, norm, x, y, train, allow):
    """One norm of a result, from all pairs."""
    distance, n = DISTANCES[norm], len(x)
    (figures_of_norm,) = (entry for entry in result.norms if entry.norm == norm)

    def nearest(i, same, points, labels):
        return min(
            distance(x[i], point)
            for j, (point, label) in enumerate(zip(points, labels, strict=True))
            if (label == y[i]) == same and not (points is x and j == i)
        )

    other, same, of_train = (
        np.array([nearest(i, *arguments) for i in range(n)])
        for arguments in ((False, x, y), (True, x, y), (False, *train))
    )
    same_train = np.array([nearest(i, True, *train) for i in range(n)])
    limits = np.array([np.minimum(other, of_train) / 2, np.minimum(same, same_train) * (1 - 1e-6)])
    for entry, rows in [
        (figures_of_norm.overall, np.ones(n, bool)),
        *((entry, y == entry.class_) for entry in figures_of_norm.per_class),
    ]:
        index = math.floor(allow * rows.sum() + 1e-9)
        ends = [np.sort(limit[rows])[index] for limit in limits]
        assert entry.eps == pytest.approx(
            rounded(min(ends), norm), rel=2e-2 if norm != "l0" else 0, abs=1e-6
        )
        assert list(entry.limits.values()) == pytest.approx(
            [rounded(end, norm) for end in ends], rel=2e-2, abs=1e-6
        )
        assert entry.sound == entry.eps == min(entry.limits.values())
    budgets = np.quantile(
        (np.floor(limits) if norm == "l0" else limits).min(0),
        [0, 0.25, 0.5, 0.75, 1],
        method="nearest",
    )
    np.testing.assert_allclose(figures_of_norm.per_sample, budgets, rtol=1e-4)
    for entry, rows in [
        (figures_of_norm.overall, np.ones(n, bool)),
        *((e, y == e.class_) for e in figures_of_norm.per_class),
    ]:
        figures = (
            entry.n,
            entry.other_least,
            entry.other_median,
            entry.same_median,
            entry.train_least,
        )
        expected = (
            rows.sum(),
            other[rows].min(),
            np.median(other[rows]),
            np.median(same[rows]),
            of_train[rows].min(),
        )
        assert (
            figures == pytest.approx(expected, rel=1e-4)
            and entry.nearer_other == (other < same)[rows].mean()
        )


def test_recommendations_follow_from_all_pairs(tmp_path):
    for seed, allow in enumerate([0.0, 0.25]):
        rng = np.random.default_rng(seed)
        x, z = (rng.integers(0, 8, (n, 1, 2, 4)).astype(np.float32) / 8 for n in (15, 12))
        y, w = np.arange(15) % 3, np.arange(12) % 3
        x[y == 1] *= 0.5
        result = brinell.epsilon(
            (x, y), train=(z, w), norm=list(DISTANCES), allow=allow, out=tmp_path / str(seed)
        )
        assert (result.n, result.request.allow, len(result.classes)) == (15, allow, 3)
        for norm in DISTANCES:
            check_norm(result, norm, x, y, (z, w), allow)
        for recommended in result.norms:
            for a in range(3):
                for b in range(3):
                    pairs = [
                        DISTANCES[recommended.norm](x[i], x[j])
                        for i in np.flatnonzero(y == a)
                        for j in np.flatnonzero(y == b)
                        if i != j
                    ]
                    assert recommended.means[a][b] == pytest.approx(np.mean(pairs), rel=1e-3)
