"""The distances: what they draw, and that they step by the steepest."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from _helpers import distance
from brinell.core import norms
from brinell.core.streams import Streams

NORMS = ["linf", "l2", "l1"]


@pytest.mark.parametrize("norm", NORMS)
def test_draws_fill_the_ball_evenly(norm):
    """In d dimensions the share of a ball's volume within radius r is r^d, in any norm; directions point everywhere alike."""
    n, shape = 4000, (2, 2)
    streams = Streams.of(3, torch.arange(n))
    delta = distance(norm).sample(streams, shape)
    size = distance(norm).size(delta)
    assert delta.shape == (n, *shape) and size.max() <= 1 + 1e-6
    for radius in (0.5, 0.8, 0.95):
        share = radius**4
        assert (size <= radius).float().mean().item() == pytest.approx(share, abs=4.5 * (share * (1 - share) / n) ** 0.5)
    direction = distance(norm).direction(streams, shape)
    torch.testing.assert_close(distance(norm).size(direction), torch.ones(n))
    assert direction.mean(0).abs().max() < 4.5 * direction.std() / n**0.5
    assert (direction > 0).float().mean(0).sub(0.5).abs().max() < 4.5 * 0.5 / n**0.5
    spread = direction.flatten(1).pow(2).mean(0)
    assert (spread / spread.mean() - 1).abs().max() < 0.1


@pytest.mark.parametrize("norm", NORMS)
@given(st.integers(0, 1000), st.floats(-25, 4))
def test_ascent_is_the_steepest_step(norm, seed, magnitude):
    """By duality the steepest step of size 1 rises by the dual norm of the gradient, at any scale of the gradient."""
    grad = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(seed)) * 10.0**magnitude
    step = distance(norm).ascent(grad)
    torch.testing.assert_close(distance(norm).size(step), torch.ones(3))
    dual = {"linf": norms.l1, "l2": norms.l2, "l1": norms.linf}[norm]
    risen = (step.double() * grad.double()).flatten(1).sum(1)
    torch.testing.assert_close(risen, dual(grad.double()), rtol=1e-4, atol=0)


@pytest.mark.parametrize("norm", NORMS)
def test_no_step_from_gradient_zero(norm):
    assert torch.equal(distance(norm).ascent(torch.zeros(2, 3)), torch.zeros(2, 3))
