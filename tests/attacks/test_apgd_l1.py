"""APGD in L1: the projection onto ball and bounds against an exact solver, and the algorithm of the
paper on what is known.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from _helpers import Recorder, run_attack, threshold
from brinell.attacks._sparse_steps import SparseState, into_ball_and_bounds, phases
from brinell.attacks.apgd import APGD
from brinell.core.domain import Domain

TEN = Domain(kind="vector", shape=(10,))


def clipped(delta, eps, x0):
    """`into_ball_and_bounds` in the unit cube around `x0`, of one row."""
    x0, delta = (torch.tensor(row, dtype=torch.float32)[None] for row in (x0, delta))
    return into_ball_and_bounds(delta, torch.tensor([eps]), -x0, 1 - x0)[0].numpy()


def test_projection_by_hand(subtests):
    for delta, x0, eps, expected in [
        # The first value has a room of 0.1 only; the rest of eps goes to the others: a threshold of
        # 0.5.
        ([2.0, 0.9, -0.7], [0.9, 0.5, 0.5], 0.7, [0.1, 0.4, -0.2]),
        ([2.0, 0.9, -0.7], [0.9, 0.5, 0.5], 0.1, [0.1, 0.0, 0.0]),
        ([0.05, -0.1, 0.0], [0.5, 0.5, 0.5], 1.0, [0.05, -0.1, 0.0]),
        # All cut at the bounds, and still within eps.
        ([3.0, -3.0, 3.0], [0.9, 0.1, 1.0], 1.0, [0.1, -0.1, 0.0]),
        ([1.0, -1.0, 1.0], [0.5, 0.5, 0.5], 0.0, [0.0, 0.0, 0.0]),
    ]:
        with subtests.test(delta=delta, x0=x0, eps=eps):
            np.testing.assert_allclose(clipped(delta, eps, x0), expected, atol=1e-6)


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.floats(0.05, 6), st.floats(0.02, 3))
def test_projection_is_the_root_of_its_condition(seed, eps, spread):
    """Each value is shrunk by one threshold and cut at its bound; the threshold is found here by
    bracketing, in float64.
    """
    rng = np.random.default_rng(seed)
    x0, delta = (
        rng.random((5, 40)).astype(np.float32),
        (spread * rng.normal(size=(5, 40))).astype(np.float32),
    )
    x0[:, :8] = rng.integers(0, 2, (5, 8))  # many values of a picture lie on a bound
    room = np.where(delta > 0, 1 - x0.astype(np.float64), x0.astype(np.float64))

    def clipped(row, threshold):
        return np.clip(np.abs(delta[row].astype(np.float64)) - threshold, 0, room[row])

    expected = []
    for row in range(5):
        fits = clipped(row, 0).sum() <= eps
        top = float(np.abs(delta[row]).max())
        root = (
            0.0
            if fits
            else brentq(lambda t, row=row: clipped(row, t).sum() - eps, 0, top, xtol=1e-13)
        )
        expected.append(np.sign(delta[row]) * clipped(row, root))
    x0_, delta_ = torch.from_numpy(x0), torch.from_numpy(delta)
    projected = into_ball_and_bounds(delta_, torch.full((5,), eps), -x0_, 1 - x0_).numpy()
    np.testing.assert_allclose(projected, expected, atol=1e-5)
    assert (
        (np.abs(projected).sum(1) <= eps * (1 + 1e-6)).all()
        and (x0 + projected >= -1e-6).all()
        and (x0 + projected <= 1 + 1e-6).all()
    )


def test_the_first_step_changes_a_fifth_of_the_values_by_one_amount():
    """Section 3: from the clean input eps goes in equal parts into the steepest values."""
    weight = torch.arange(1.0, 11.0) * torch.tensor([1.0, -1.0]).repeat(5)
    model = Recorder(lambda x: torch.stack([0 * x[:, 0] + 1e3, x @ weight], 1), TEN)
    run_attack(
        APGD(steps=2, random_start=False, loss="margin"),
        model,
        torch.full((1, 10), 0.5),
        [0],
        0.4,
        "l1",
    )
    expected = torch.full((10,), 0.5)
    expected[8], expected[9] = 0.7, 0.3
    torch.testing.assert_close(model.calls[1][0], expected)


def test_steps_follow_the_sparsity_of_the_best_point():
    """A best point that became sparser is gone back to with full steps; otherwise steps shrink, to
    a tenth at least.
    """
    x0, zero = torch.zeros(3, 12), torch.zeros(3)
    state = SparseState(x0, x0, zero, torch.zeros(3, 12), torch.full((3,), 0.6))
    state.step_size = torch.tensor([0.3, 0.3, 0.07])
    state.x_max = torch.zeros(3, 12)
    state.x_max[0, :6] = state.x_max[1] = state.x_max[2] = 0.1
    state.x = torch.ones(3, 12)
    state.review(4)
    assert state.step_size.tolist() == pytest.approx(
        [0.6, 0.2, 0.06]
    ) and state.count.tolist() == pytest.approx([4, 8, 8])
    assert torch.equal(state.x[0], state.x_max[0]) and (state.x[1:] == 1).all()


def test_a_run_begins_within_three_eps(subtests):
    """30 %, 30 % and 40 % of the steps."""
    for steps, expected in [
        (100, {0: 3.0, 30: 2.0, 60: 1.0}),
        (50, {0: 3.0, 15: 2.0, 30: 1.0}),
        (4, {0: 3.0, 1: 2.0, 2: 1.0}),
        (3, {0: 1.0}),
    ]:
        with subtests.test(steps=steps, expected=expected):
            assert phases(steps, wide=True) == expected and phases(steps, wide=False) == {0: 1.0}
            assert (
                APGD(steps=steps).reach("l1") == expected[0]
                and APGD(steps=steps).reach("linf") == 1.0
            )


@pytest.mark.parametrize("random_start", [True, False])
def test_each_phase_fills_its_radius_and_begins_where_the_one_before_was_best(random_start):
    """A linear model that is never fooled: the loss rises with every radius, so the best point lies
    on its sphere.
    """
    weight = torch.arange(1.0, 11.0) * torch.tensor([1.0, -1.0]).repeat(5)
    # Before the last step of the first phase the model turns around once, so that the best point is
    # an earlier one.
    model = Recorder(
        lambda x: torch.stack(
            [0 * x[:, 0] + 1e3, x @ weight * (1 - 2 * (len(model.calls) == 6))], 1
        ),
        TEN,
    )
    x0 = torch.full((2, 10), 0.5)
    attack = APGD(steps=20, loss="margin", random_start=random_start)
    ledger = run_attack(attack, model, x0, [0, 0], 0.1, "l1")
    sizes = torch.stack([(call - x0).abs().sum(1) for call in model.calls]) / 0.1
    assert (
        len(sizes) == 21
        and (sizes <= torch.tensor([3.0] * 7 + [2.0] * 6 + [1.0] * 8)[:, None] * (1 + 1e-5)).all()
    )
    for last, radius in ((4, 3.0), (12, 2.0), (20, 1.0)):
        assert (sizes[last] > 0.99 * radius).all()
    best = torch.stack(model.calls[:5])
    best = best[(best @ weight).argmax(0), torch.arange(2)]
    start = x0 + into_ball_and_bounds(best - x0, torch.full((2,), 0.2), -x0, 1 - x0)
    torch.testing.assert_close(model.calls[7], start)
    assert not torch.allclose(start, model.calls[6])
    inside_ball = torch.stack(model.calls)[(sizes <= 1 + 1e-5).nonzero(as_tuple=True)]
    assert ledger.best.margin.max() == pytest.approx(float((inside_ball @ weight).max()) - 1e3)


def test_what_fools_beyond_eps_only_is_no_success():
    """Above 0.8 in one value the class changes: 0.3 away, within 3 eps and 2 eps, and not within
    eps.
    """
    model = Recorder(threshold(0.8), TEN)
    ledger = run_attack(APGD(steps=20), model, torch.full((3, 10), 0.5), [0] * 3, 0.25, "l1")
    fooled = torch.stack([threshold(0.8)(call).argmax(1) for call in model.calls])
    assert (
        fooled[:13].any(0).all()
        and not ledger.fooled.any()
        and ledger.costs.forwards.tolist() == [21] * 3
    )
    assert run_attack(
        APGD(steps=20), model, torch.full((3, 10), 0.5), [0] * 3, 0.31, "l1"
    ).fooled.all()
