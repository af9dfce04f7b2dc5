"""CGBA on a sphere whose nearest boundary is known, its semicircles, its noise, and what it spends."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from _helpers import Recorder, run_attack, sphere, threshold
from brinell.attacks._label_walk import SmoothNoise
from brinell.attacks._shared import cosines
from brinell.attacks.cgba import CGBA
from brinell.core.domain import Domain
from brinell.core.streams import Streams

PLANE = Domain(kind="vector", shape=(2,), low=-9.0, high=9.0)


def test_each_way_is_a_semicircle_through_the_boundary_point_and_the_clean_input():
    """The first value decides: after the estimate all inputs lie on the circle, the first of them
    at half a right angle, and the last one nearer than where the way began.
    """
    x = torch.tensor([[0.2, 0.4]])
    model = Recorder(threshold(0.5), PLANE)
    run_attack(CGBA(steps=1, samples=40), model, x, [0], 20.0, "l2")
    calls = torch.cat(model.calls)
    halvings = SmoothNoise(PLANE, 1.0).halvings()
    turn = calls[-halvings:] - x
    before = calls[: -halvings - 40] - x
    start = before[before[:, 0] > 0.3].norm(dim=1).min()

    # Inputs of a circle through 0 are seen from its centre at one distance.
    lengths = turn.norm(dim=1)
    torch.testing.assert_close(lengths[0], start / 2**0.5, atol=1e-4, rtol=0)
    angles = torch.acos((lengths / start).clamp(max=1))
    steps = (angles[1:] - angles[:-1]).abs()
    halves = torch.pi / 8 / 2 ** torch.arange(len(steps))
    torch.testing.assert_close(steps, halves, atol=2e-3, rtol=0)
    nearest = lengths[turn[:, 0] > 0.3].min()
    assert 0.3 <= nearest < start


@settings(max_examples=6)
@given(st.integers(0, 10**6))
def test_the_nearest_point_of_a_sphere_is_found(seed):
    """The boundary bends away from the clean input, as far as a sphere around another point does."""
    domain = Domain(kind="vector", shape=(8,), low=-4.0, high=4.0)
    function, x, margin = sphere(8, seed)
    model = Recorder(function, domain)
    ledger = run_attack(CGBA(steps=12, samples=60), model, x, [0] * len(x), 20.0, "l2", seed=seed)
    assert (ledger.best.distance >= 0.999 * margin).all()
    assert (ledger.best.distance <= 1.05 * margin).all()


def test_a_model_that_never_errs_is_asked_as_often_as_there_are_tries():
    model = Recorder(lambda x: torch.stack([torch.ones(len(x)), torch.zeros(len(x))], 1))
    ledger = run_attack(CGBA(starts=7), model, [[0.2, 0.4], [0.3, 0.3]], [0, 0], 1.0, "l2")
    assert ledger.costs.forwards.tolist() == [7, 7] and not ledger.fooled.any()


@pytest.mark.parametrize(
    ("domain", "share", "counts"),
    [
        (Domain(kind="image", shape=(2, 9, 8)), 0.3, (3, 3)),
        (Domain(kind="signal", shape=(2, 30)), 0.3, (9,)),
        (Domain(kind="video", shape=(1, 4, 8, 5)), 0.3, (2, 3, 2)),
        (Domain(kind="image", shape=(1, 20, 9)), 0.5, (10, 5)),
    ],
)
def test_noise_has_low_frequencies_alone(domain, share, counts):
    """Its parts by frequency are standard normal below the share of each axis, and 0 above it."""
    noise = SmoothNoise(domain, share)(Streams.of(0, torch.arange(40)), 5).flatten(0, 1)
    parts = noise
    for side in domain.grid:
        parts = torch.tensordot(parts, cosines(side).T, dims=([2], [0]))
    low = (slice(None), slice(None), *map(slice, counts))
    assert parts[low].std().item() == pytest.approx(1, abs=0.1)
    assert abs(parts[low].mean()) < 0.1
    parts[low] = 0
    assert parts.abs().max() < 1e-4


def test_noise_of_a_vector_has_all_frequencies():
    noise = SmoothNoise(Domain(kind="vector", shape=(6,)), 0.3)(Streams.of(0, torch.arange(50)), 40)
    covariance = noise.flatten(0, 1).T.cov()
    torch.testing.assert_close(covariance, torch.eye(6), atol=0.15, rtol=0)
