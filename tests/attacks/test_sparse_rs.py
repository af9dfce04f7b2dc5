"""Sparse-RS against its paper: how much changes at once, where, and in which colours; and optima
that are known.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from _helpers import Recorder, distance, run_attack, slope
from brinell.attacks.sparse_rs import SparseRS
from brinell.core.domain import Domain
from brinell.core.streams import Streams

IMAGE = Domain(kind="image", shape=(3, 9, 8))
DOMAINS = [
    IMAGE,
    Domain(kind="signal", shape=(2, 40)),
    Domain(kind="video", shape=(1, 3, 6, 5)),
    Domain(kind="vector", shape=(30,)),
]


def queries_of(domain, eps, steps, x=None, norm="l0", **settings):
    """Clean inputs, and (steps + 1, n, *shape) of what was asked about, of a linear model that is
    never fooled."""
    x = Streams.of(4, torch.arange(3)).uniform(*domain.shape) * 0.2 + 0.4 if x is None else x
    model = Recorder(
        lambda x: torch.stack([torch.full((len(x),), 1e3), x.flatten(1) @ slope(domain)], 1), domain
    )
    ledger = run_attack(SparseRS(steps=steps, **settings), model, x, [0] * len(x), eps, norm)
    assert ledger.costs.forwards.tolist() == [steps + 1] * len(x)
    return x, torch.stack(model.calls)


def places(domain, change):
    """(..., places) bool: where any channel differs."""
    if domain.kind == "vector":
        return change != 0
    return (change != 0).any(-len(domain.shape)).flatten(-len(domain.shape) + 1)


def accepted(domain, calls):
    """For each proposal, the best input before it."""
    best = calls[0].clone()
    for proposal in calls[1:]:
        yield best.clone(), proposal
        improved = (proposal - best).flatten(1) @ slope(domain) > 0
        best[improved] = proposal[improved]


# Schedules


def test_schedules_by_hand():
    search = SparseRS(steps=10_000)
    marks = [
        (0, 2),
        (49, 2),
        (50, 4),
        (200, 5),
        (500, 6),
        (1000, 8),
        (2000, 10),
        (4000, 12),
        (6000, 15),
        (8000, 20),
    ]
    for norm in ("l0", "pixels"):
        for step, divisor in marks:
            assert search.share(step, norm) == pytest.approx(0.3 / divisor)
    assert search.share(0, "patch") == 0.4 and search.share(10, "patch") == 0.2
    assert search.share(9999, "patch") == pytest.approx(0.4 / 512)
    assert SparseRS(steps=100).share(10, "l0") == pytest.approx(0.3 / 8)
    fixed = SparseRS(steps=100, rescale_schedule=False, p_init=0.6)
    assert fixed.share(60, "l0") == pytest.approx(0.15)


# Proposals


def test_pixels_that_change(subtests):
    """floor(eps / C) places, each at a corner of its range and none as it was."""
    for domain in DOMAINS:
        with subtests.test(domain=domain):
            channels = 1 if domain.kind == "vector" else domain.shape[0]
            x, calls = queries_of(domain, 5 * channels + 0.5, 60)
            change = calls - x
            assert (places(domain, change).sum(-1) == 5).all()
            assert torch.isin(calls[change != 0], torch.tensor([0.0, 1.0])).all()
            changed = places(domain, change).any(0)
            assert (changed.float().mean(-1) > 0.4).all()  # the search goes everywhere


def test_as_many_pixels_are_exchanged_as_the_schedule_says():
    x, calls = queries_of(IMAGE, 3 * 20, 100, rescale_schedule=False)
    for step, (best, proposal) in enumerate(accepted(IMAGE, calls)):
        swapped = max(1, int(20 * SparseRS(steps=100, rescale_schedule=False).share(step, "l0")))
        removed = places(IMAGE, best - x) & ~places(IMAGE, proposal - x)
        come = places(IMAGE, proposal - x) & ~places(IMAGE, best - x)
        assert (removed.sum(1) == swapped).all() and (come.sum(1) == swapped).all()


@settings(max_examples=30)
@given(st.integers(1, 80), st.sampled_from(["l0", "patch"]), st.integers(0, 3))
def test_any_budget_is_kept(eps, norm, seed_number):
    """Of any eps, of clean inputs at their bounds, and where all places may change."""
    domain = DOMAINS[seed_number]
    x = (Streams.of(eps, torch.arange(2)).uniform(*domain.shape) * 3).floor().div(2).clamp(0, 1)
    channels = 1 if domain.kind == "vector" else domain.shape[0]
    if eps >= channels or norm == "patch":
        _, calls = queries_of(domain, eps, 6, x=x, norm=norm)
        change = (calls - x).flatten(0, 1)
        assert distance(norm).size(change).max() <= eps
        if norm == "l0":
            most = min(eps // channels, math.prod(domain.shape) // channels)
            assert (places(domain, calls - x).sum(-1) == most).all()


def test_too_small_a_budget_asks_nothing():
    model = Recorder(lambda x: x.flatten(1)[:, :2], IMAGE)
    ledger = run_attack(
        SparseRS(steps=5),
        model,
        torch.full((3, 3, 9, 8), 0.5),
        [0, 0, 0],
        torch.tensor([2.0, 2.9, 0.0]),
        "l0",
    )
    assert ledger.costs.forwards.tolist() == [0, 0, 0] and not model.calls


def test_a_patch_is_one_block_that_moves(subtests):
    for domain in DOMAINS:
        with subtests.test(domain=domain):
            grid = domain.shape if domain.kind == "vector" else domain.shape[1:]
            side = {1: 6, 2: 3, 3: 2}[len(grid)]
            x, calls = queries_of(domain, side, 60, norm="patch")
            corners = set()
            for changed in places(domain, calls - x).flatten(0, 1).reshape(-1, *grid):
                index = changed.nonzero()
                low, high = index.amin(0), index.amax(0)
                assert (high - low + 1).tolist() == [side] * len(grid) and int(
                    changed.sum()
                ) == side ** len(grid)
                corners.add(tuple(low.tolist()))
            assert len(corners) > 5


# Known optima


def test_the_best_values_of_a_linear_model_are_found():
    """Three of thirty values, each at the better end: the three of largest gain, and no more can be
    had.
    """
    domain = Domain(kind="vector", shape=(30,))
    x, calls = queries_of(domain, 3, 500)
    gain = torch.maximum(slope(domain) * (1 - x), -slope(domain) * x).topk(3, dim=1).values.sum(1)
    torch.testing.assert_close(((calls - x) @ slope(domain)).amax(0), gain)
