"""The distances: what they draw, and that they step by the steepest."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from _helpers import Recorder, batch_of, distance, threat_of
from _refusals import refused
from brinell.core import norms
from brinell.core.domain import Domain
from brinell.core.errors import ContractError
from brinell.core.ledger import Ledger
from brinell.core.streams import Streams
from brinell.testing.linear import LinearModel

NORMS = ["linf", "l2", "l1"]


def test_draws_fill_the_ball_evenly(subtests):
    """In d dimensions the share of a ball's volume within radius r is r^d, in any norm; directions
    point everywhere alike.
    """
    for norm in NORMS:
        with subtests.test(norm=norm):
            n, shape = 4000, (2, 2)
            streams = Streams.of(3, torch.arange(n))
            delta = distance(norm).sample(streams, shape)
            size = distance(norm).size(delta)
            assert delta.shape == (n, *shape) and size.max() <= 1 + 1e-6
            for radius in (0.5, 0.8, 0.95):
                share = radius**4
                assert (size <= radius).float().mean().item() == pytest.approx(
                    share, abs=4.5 * (share * (1 - share) / n) ** 0.5
                )
            direction = distance(norm).direction(streams, shape)
            torch.testing.assert_close(distance(norm).size(direction), torch.ones(n))
            assert direction.mean(0).abs().max() < 4.5 * direction.std() / n**0.5
            assert (direction > 0).float().mean(0).sub(0.5).abs().max() < 4.5 * 0.5 / n**0.5
            spread = direction.flatten(1).pow(2).mean(0)
            assert (spread / spread.mean() - 1).abs().max() < 0.1


@pytest.mark.parametrize("norm", NORMS)
@given(st.integers(0, 1000), st.floats(-25, 4))
def test_ascent_is_the_steepest_step(norm, seed, magnitude):
    """By duality the steepest step of size 1 rises by the dual norm of the gradient, at any scale
    of the gradient."""
    grad = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(seed)) * 10.0**magnitude
    step = distance(norm).ascent(grad)
    torch.testing.assert_close(distance(norm).size(step), torch.ones(3))
    dual = {"linf": norms.l1, "l2": norms.l2, "l1": norms.linf}[norm]
    rise = (step.double() * grad.double()).flatten(1).sum(1)
    torch.testing.assert_close(rise, dual(grad.double()), rtol=1e-4, atol=0)


def test_no_step_from_gradient_zero(subtests):
    for norm in NORMS:
        with subtests.test(norm=norm):
            assert torch.equal(distance(norm).ascent(torch.zeros(2, 3)), torch.zeros(2, 3))


# L0, which is no norm


def test_l0_keeps_the_largest_changes():
    delta = torch.tensor(
        [[3.0, -1.0, 0.0, 2.0, -4.0], [1.0, 1.0, 1.0, 1.0, 1.0], [5.0, 0.0, 0.0, 0.0, 0.0]]
    )
    projected = distance("l0").project(delta, torch.tensor([2.9, 3.0, 0.0]))
    assert projected[0].tolist() == [3, 0, 0, 0, -4]
    assert distance("l0").size(projected).tolist() == [2, 3, 0]


def test_l0_steps_and_draws_one_value():
    grad = torch.tensor([[[0.5, -2.0], [1.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]])
    assert distance("l0").ascent(grad).tolist() == [[[0, -1], [0, 0]], [[0, 0], [0, 0]]]
    draws = distance("l0").sample(Streams.of(0, torch.arange(2000)), (2, 3))
    assert (distance("l0").size(draws) == 1).all() and draws.abs().max() <= 1
    places = (draws != 0).flatten(1).float().mean(0)
    assert places.sub(1 / 6).abs().max() < 4.5 * (1 / 6 / 2000) ** 0.5


def test_l0_allows_no_value_more():
    """Rounding adds to the other distances. A count is exact: one value beyond eps is a breach."""
    threat = threat_of(2.0, "l0", Domain(kind="vector", shape=(4,)))
    assert threat.tolerance().tolist() == [0.0]
    batch = batch_of([[0.5, 0.5, 0.5, 0.5]], [0])
    ledger = Ledger(Recorder(lambda x: x[:, :2], threat.domain), batch, threat)
    ledger.oracle().scores(batch.ids, torch.tensor([[0.1, 0.5, 0.9, 0.5]]))
    with pytest.raises(ContractError, check=refused("core.ledger.Ledger._check_reach")):
        ledger.oracle().scores(batch.ids, torch.tensor([[0.1, 0.5, 0.9, 0.50001]]))


def test_pixels_count_places_and_keep_whole_ones():
    delta = torch.tensor([[[3.0, 0.0, 0.0], [0.0, 1.0, 0.1]], [[0.0, 0.0, 2.0], [0.0, 0.0, 0.0]]])
    pixels = distance("pixels")
    assert pixels.size(delta).tolist() == [3, 1]
    projected = pixels.project(delta, torch.tensor([2.9, 0.0]))
    assert projected.tolist() == [[[3, 0, 0], [0, 1, 0]], [[0, 0, 0], [0, 0, 0]]]
    # Two channels of the second place rise faster than the steepest value.
    grad = torch.tensor([[[0.0, 2.0, 0.0], [3.0, -2.0, 0.0]]])
    assert pixels.ascent(grad).tolist() == [[[0, 1, 0], [0, -1, 0]]]
    draws = pixels.direction(Streams.of(0, torch.arange(50)), (2, 3))
    assert (pixels.size(draws) == 1).all() and draws.ne(0).sum((1, 2)).eq(2).all()


def test_pixels_of_a_vector_are_its_values():
    delta = Streams.of(3, torch.arange(5)).normal(6)
    budgets = torch.arange(5.0)
    expected = distance("l0").project(delta.clone(), budgets)
    assert torch.equal(distance("pixels").project(delta, budgets), expected)


def test_l0_margin_of_a_linear_model_is_that_of_all_subsets():
    """Seven values, every subset of them, each value at either end of its range."""
    weight = Streams.of(1, torch.arange(3)).normal(7)
    model = LinearModel(
        weight, torch.zeros(3), Domain(kind="vector", shape=(7,), low=-1.0, high=2.0)
    )
    x = Streams.of(2, torch.arange(12)).uniform(7)
    y = model.predict(x).argmax(1)
    for row, margin in enumerate(model.margin(x, y, "l0").tolist()):
        fewest = float("inf")
        for ends in itertools.product((None, -1.0, 2.0), repeat=7):
            changed = torch.tensor(
                [
                    value if end is None else end
                    for value, end in zip(x[row].tolist(), ends, strict=True)
                ]
            )
            if int((weight @ changed).argmax()) != int(y[row]):
                fewest = min(fewest, sum(end is not None for end in ends))
        assert margin == fewest


# One square


def test_a_patch_is_the_smallest_square_around_all_changes():
    delta = torch.zeros(4, 2, 5, 7)
    delta[1, 1, 2, 3] = -0.1
    delta[2, 0, 1, 1] = delta[2, 1, 3, 2] = 0.5  # three rows, two columns
    delta[3, 0, 4, 0] = delta[3, 0, 4, 6] = 1e-9
    assert distance("patch").size(delta).tolist() == [0, 1, 3, 7]
    assert distance("patch").size(torch.zeros(0, 2, 5, 7)).shape == (0,)
    assert distance("patch").size(torch.tensor([[0.0, 1, 0, 0, 1, 0]])).tolist() == [4]


@pytest.mark.parametrize("shape", [(2, 5, 7), (3, 9), (1, 3, 4, 5)])
def test_a_patch_keeps_the_square_of_the_largest_changes(shape):
    """Of all squares of the side, cut where an axis is shorter, tried one by one."""
    grid, n = shape[1:], 12
    delta = Streams.of(4, torch.arange(n)).normal(*shape)
    eps = torch.arange(n) % 7 + 0.5
    projected = distance("patch").project(delta.clone(), eps)
    assert (distance("patch").size(projected) <= eps).all()
    for row in range(n):
        side = int(eps[row])
        widths = [min(side, length) for length in grid]
        largest = 0.0
        rooms = [range(length - width + 1) for length, width in zip(grid, widths, strict=True)]
        for corner in itertools.product(*rooms):
            window = tuple(slice(a, a + w) for a, w in zip(corner, widths, strict=True))
            largest = max(largest, float(delta[row, :, *window].square().sum()))
        assert float(projected[row].square().sum()) == pytest.approx(largest, rel=1e-5)
        unchanged = (projected[row] == 0) | (projected[row] == delta[row])
        assert unchanged.all()


def test_a_patch_leaves_alone_what_lies_in_it():
    """A tiny change beside large ones stays, although a square without it adds up to as much."""
    delta = torch.zeros(1, 1, 1, 8)
    delta[..., 2:5] = torch.tensor([1e-12, 1.0, 1.0])
    projected = distance("patch").project(delta.clone(), torch.tensor([3.0]))
    assert torch.equal(projected, delta)


def test_a_patch_allows_no_place_more():
    threat = threat_of(2.0, "patch", Domain(kind="image", shape=(1, 1, 4)))
    batch = batch_of([[[[0.5, 0.5, 0.5, 0.5]]]], [0])
    ledger = Ledger(Recorder(lambda x: x.flatten(1)[:, :2], threat.domain), batch, threat)
    ledger.oracle().scores(batch.ids, torch.tensor([[[[0.5, 0.1, 0.9, 0.5]]]]))
    with pytest.raises(ContractError, check=refused("core.ledger.Ledger._check_reach")):
        ledger.oracle().scores(batch.ids, torch.tensor([[[[0.1, 0.5, 0.9, 0.5]]]]))
