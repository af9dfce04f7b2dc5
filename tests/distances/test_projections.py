import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import brentq, minimize

from _helpers import distance
from brinell.core import norms
from brinell.distances import _projections as projections

PROJECT = {
    "linf": projections.project_linf,
    "l2": projections.project_l2,
    "l1": projections.project_l1,
}
SIZE = {"linf": norms.linf, "l2": norms.l2, "l1": norms.l1}
NORMS = sorted(PROJECT)

values = st.floats(-2, 2, width=32).map(lambda v: 0.0 if abs(v) < 1e-4 else v)
deltas = hnp.arrays(
    np.float32, hnp.array_shapes(min_dims=2, max_dims=4, max_side=5), elements=values
)
radii = st.floats(0, 3, width=32)


def eps_for(delta, radius):
    return torch.full((len(delta),), radius, dtype=torch.float32)


# Known answers


def test_by_hand(subtests):
    for norm, delta, eps, expected in [
        ("linf", [0.3, -0.5, 0.1], 0.2, [0.2, -0.2, 0.1]),
        ("l2", [3.0, 4.0, 0.0], 1.0, [0.6, 0.8, 0.0]),
        ("l2", [0.3, 0.4, 0.0], 1.0, [0.3, 0.4, 0.0]),
        # Threshold 1: |3| - 1 + |2| - 1 = 3, and 0.5 vanishes.
        ("l1", [3.0, -2.0, 0.5], 3.0, [2.0, -1.0, 0.0]),
        # Threshold 0.5: all three stay.
        ("l1", [3.0, -2.0, 1.0], 4.5, [2.5, -1.5, 0.5]),
        ("l1", [1.0, 1.0, 1.0], 1.5, [0.5, 0.5, 0.5]),
        ("l1", [0.1, -0.2, 0.1], 0.5, [0.1, -0.2, 0.1]),
        ("linf", [1.0, -1.0, 0.0], 0.0, [0.0, 0.0, 0.0]),
        ("l2", [1.0, -1.0, 0.0], 0.0, [0.0, 0.0, 0.0]),
        ("l1", [1.0, -1.0, 0.0], 0.0, [0.0, 0.0, 0.0]),
    ]:
        with subtests.test(norm=norm, delta=delta, eps=eps):
            torch.testing.assert_close(
                PROJECT[norm](torch.tensor([delta]), torch.tensor([eps])), torch.tensor([expected])
            )


def test_one_radius_per_sample():
    delta = torch.tensor([[3.0, 4.0], [3.0, 4.0]])
    projected = projections.project_l2(delta, torch.tensor([1.0, 2.5]))
    torch.testing.assert_close(projected, torch.tensor([[0.6, 0.8], [1.5, 2.0]]))


def test_shapes_are_kept(subtests):
    for norm in NORMS:
        with subtests.test(norm=norm):
            delta = torch.linspace(-1, 1, 2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
            projected = PROJECT[norm](delta, torch.tensor([0.5, 100.0]))
            assert projected.shape == delta.shape
            assert torch.equal(projected[1], delta[1])
            torch.testing.assert_close(SIZE[norm](projected)[0], torch.tensor(0.5))


@settings(max_examples=40)
@given(deltas, st.floats(0.0625, 3, width=32))
def test_l1_is_the_root_of_the_soft_threshold(delta, eps):
    """The projection soft-thresholds at the one value where the absolute values add up to eps;
    found here by bracketing.
    """
    flat = np.abs(delta.reshape(len(delta), -1).astype(np.float64))
    expected = []
    for row in flat:
        threshold = 0.0
        if row.sum() > eps:
            threshold = brentq(
                lambda t, row=row: np.maximum(row - t, 0).sum() - eps, 0, row.max(), xtol=1e-12
            )
        expected.append(np.maximum(row - threshold, 0))
    expected = (np.sign(delta) * np.reshape(expected, delta.shape)).astype(np.float32)
    projected = projections.project_l1(torch.from_numpy(delta), eps_for(delta, eps))
    torch.testing.assert_close(projected, torch.from_numpy(expected), atol=2e-5, rtol=1e-4)


def sorted_l1(delta, eps):
    """Duchi et al. 2008, Fig. 1, in float64: the threshold by sorting, of one row."""
    ordered = np.sort(np.abs(delta))[::-1]
    candidates = (ordered.cumsum() - eps) / np.arange(1, len(delta) + 1)
    threshold = max(candidates[(ordered > candidates).sum() - 1], 0.0)
    return np.sign(delta) * np.maximum(np.abs(delta) - threshold, 0)


def test_l1_is_what_sorting_finds(subtests):
    """Inputs of the size of an image, exact to float32: off by a few roundings of the largest
    value.
    """
    for eps in [1e-3, 0.5, 12.0, 400.0]:
        for kind in ["dense", "sparse", "steep", "ties", "one"]:
            with subtests.test(eps=eps, kind=kind):
                rng = np.random.default_rng(0)
                rows = {
                    "dense": rng.normal(size=(6, 3072)),
                    "sparse": rng.normal(size=(6, 3072)) * (rng.random((6, 3072)) < 0.01),
                    "steep": rng.normal(size=(6, 3072)) * np.geomspace(1, 1e-6, 3072),
                    "ties": rng.choice([-1.0, -0.5, 0.25, 1.0], size=(6, 3072)),
                    "one": np.eye(6, 3072) * 30 - np.eye(6, 3072, 7) * 1e-4,
                }[kind].astype(np.float32)
                expected = np.stack([sorted_l1(row.astype(np.float64), eps) for row in rows])
                projected = projections.project_l1(
                    torch.from_numpy(rows), eps_for(rows, eps)
                ).numpy()
                np.testing.assert_allclose(
                    projected,
                    expected,
                    rtol=0,
                    atol=4 * np.finfo(np.float32).eps * np.abs(rows).max(),
                )


def test_l1_is_what_a_solver_finds():
    for seed in range(5):
        delta = np.random.default_rng(seed).normal(size=6)
        # With delta = up - down, both at least 0, the ball is linear.
        constraint = {"type": "ineq", "fun": lambda v: 1.2 - v.sum()}
        start = np.full(12, 0.05)
        solved = minimize(
            lambda v, delta=delta: ((v[:6] - v[6:] - delta) ** 2).sum(),
            start,
            bounds=[(0, None)] * 12,
            constraints=[constraint],
            tol=1e-12,
        )
        projected = projections.project_l1(
            torch.tensor(delta[None], dtype=torch.float32), torch.tensor([1.2])
        )[0].numpy()
        np.testing.assert_allclose(projected, solved.x[:6] - solved.x[6:], atol=1e-4)


# Properties


@pytest.mark.parametrize("norm", NORMS)
@settings(max_examples=40)
@given(deltas, radii)
def test_inside_and_idempotent(norm, delta, radius):
    delta = torch.from_numpy(delta)
    eps = eps_for(delta, radius)
    projected = PROJECT[norm](delta, eps)
    assert (SIZE[norm](projected) <= eps * (1 + 2e-6) + 1e-7).all()
    torch.testing.assert_close(PROJECT[norm](projected, eps), projected, atol=1e-6, rtol=1e-5)
    within_ball = SIZE[norm](delta) <= eps
    assert torch.equal(projected[within_ball], delta[within_ball])


@pytest.mark.parametrize("norm", NORMS)
@settings(max_examples=40)
@given(deltas, radii, st.integers(0, 1000))
def test_no_point_of_the_ball_is_nearer(norm, delta, radius, seed):
    delta = torch.from_numpy(delta)
    eps = eps_for(delta, radius)
    projected = PROJECT[norm](delta, eps)
    nearest = norms.l2(projected - delta)
    ball_point = torch.randn(delta.shape, generator=torch.Generator().manual_seed(seed))
    ball_point = ball_point * norms.per_sample(
        eps / SIZE[norm](ball_point).clamp_min(1e-6), ball_point
    )
    for share in (0.02, 0.3, 1.0):
        # Any point between the projection and another point of the ball is in the ball, which is
        # convex.
        rival = projected + share * (ball_point - projected)
        assert (norms.l2(rival - delta) >= nearest * (1 - 1e-5) - 1e-5).all()


@pytest.mark.parametrize("norm", NORMS)
@settings(max_examples=40)
@given(deltas, radii)
def test_each_row_alone(norm, delta, radius):
    delta = torch.from_numpy(delta)
    eps = eps_for(delta, radius)
    joint = PROJECT[norm](delta, eps)
    separate = torch.cat(
        [PROJECT[norm](delta[i : i + 1], eps[i : i + 1]) for i in range(len(delta))]
    )
    assert torch.equal(joint, separate)


# Norms


def test_norms_by_hand():
    delta = torch.tensor([[[3.0, -4.0], [0.0, 0.0]], [[1.0, 1.0], [-1.0, 1.0]]])
    assert norms.linf(delta).tolist() == [4.0, 1.0]
    assert norms.l2(delta).tolist() == [5.0, 2.0]
    assert norms.l1(delta).tolist() == [7.0, 4.0]
    assert norms.l0(delta).tolist() == [2.0, 4.0]


@settings(max_examples=40)
@given(deltas)
def test_norms_are_numpys(delta):
    flat, delta = delta.reshape(len(delta), -1).astype(np.float64), torch.from_numpy(delta)
    for norm, order in [("linf", np.inf), ("l2", 2), ("l1", 1)]:
        np.testing.assert_allclose(
            SIZE[norm](delta), np.linalg.norm(flat, order, axis=1), rtol=1e-5, atol=1e-6
        )
    assert norms.l0(delta).tolist() == (flat != 0).sum(1).tolist()


def test_the_most_negative_value_counts_in_linf():
    assert norms.linf(torch.tensor([[0.1, -0.7]])).tolist() == pytest.approx([0.7])


def test_distances_use_them(subtests):
    for norm in NORMS:
        with subtests.test(norm=norm):
            delta, eps = torch.linspace(-1, 1, 24).reshape(2, 3, 4), torch.tensor([0.5, 0.8])
            assert torch.equal(distance(norm).size(delta), SIZE[norm](delta))
            assert torch.equal(
                distance(norm).project(delta.clone(), eps), PROJECT[norm](delta, eps)
            )
