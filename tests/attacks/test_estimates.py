"""Bandits and NES: what they estimate on models whose gradient is known, and what they spend."""

import pytest
import torch

from _helpers import Recorder, run_attack
from brinell.attacks.bandits import Bandits
from brinell.attacks.nes import NES
from brinell.core.domain import Domain
from brinell.core.streams import Streams

IMAGE = Domain(kind="image", shape=(2, 8, 6))
SLOPE = torch.cos(torch.arange(96) * 0.35) + 0.1


def unbeaten(steep=1.0, domain=IMAGE):
    return Recorder(lambda x: steep * torch.stack([torch.full((len(x),), 1e2), x.flatten(1) @ SLOPE], 1), domain)


def height(attack, norm, eps):
    """The largest rise over what was asked, as a share of the largest that the threat allows."""
    x, model = Streams.of(3, torch.arange(4)).uniform(2, 8, 6) * 0.2 + 0.4, unbeaten()
    run_attack(attack, model, x, [0] * 4, eps, norm)
    rise = (model.calls[-1] - x).flatten(1) @ SLOPE
    return rise / (eps * (SLOPE.norm() if norm == "l2" else SLOPE.abs().sum()))


@pytest.mark.parametrize(("norm", "eps"), [("l2", 0.3), ("linf", 0.05)])
def test_nes_climbs_along_the_gradient(norm, eps):
    """With 96 pairs for 96 values the estimate has a cosine of about sqrt(1/2) with the gradient, and averaging adds to it."""
    assert (height(NES(steps=30, samples=192), norm, eps) > 0.9).all()
    assert (height(NES(steps=30, samples=2), norm, eps) < 0.9).all()


@pytest.mark.parametrize(("norm", "eps", "least"), [("l2", 0.3, 0.85), ("linf", 0.05, 0.75)])
def test_bandits_remember_what_they_saw(norm, eps, least):
    assert (height(Bandits(steps=500, tile=1), norm, eps) > least).all()


def test_changes_are_constant_on_tiles(subtests):
    for domain, tile, sides in [
        (IMAGE, 2, (2, 2)),
        (IMAGE, 3, (3, 3)),
        (IMAGE, None, (2, 2)),
        (Domain(kind="signal", shape=(2, 48)), 4, (4,)),
        (Domain(kind="video", shape=(2, 3, 4, 4)), 4, (3, 4, 4)),
    ]:
        with subtests.test(domain=domain, tile=tile, sides=sides):
            model, x = unbeaten(domain=domain), torch.full((2, *domain.shape), 0.5)
            run_attack(Bandits(steps=6, tile=tile), model, x, [0, 0], 0.1)
            change = model.calls[-1] - x
            for axis, side in enumerate(sides, 2):
                starts = torch.arange(change.shape[axis]) // side * side
                torch.testing.assert_close(change, change.index_select(axis, starts))
            assert change.flatten(1).abs().amax(1).min() > 0.01
