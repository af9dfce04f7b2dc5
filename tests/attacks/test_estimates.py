"""Bandits and NES: what they estimate on models whose gradient is known, and what they spend."""

import pytest
import torch

from _helpers import Recorder, run_attack
from brinell.attacks.bandits import Bandits
from brinell.attacks.nes import NES
from brinell.core.domain import Domain
from brinell.core.streams import Streams
from brinell.testing.linear import linear_problem

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


def test_values_of_a_vector_share_nothing():
    model = unbeaten(domain=Domain(kind="vector", shape=(96,)))
    run_attack(Bandits(steps=6), model, torch.full((2, 96), 0.5), [0, 0], 0.1, "l2")
    change = model.calls[-1] - 0.5
    assert (change[:, 1:] != change[:, :-1]).float().mean() > 0.9


@pytest.mark.parametrize("attack", [Bandits(steps=20), NES(steps=3, samples=10)], ids=str)
def test_the_scale_of_logits_does_not_matter(attack):
    x = torch.full((3, 2, 8, 6), 0.5)
    calls = []
    for steep in (1.0, 64.0):
        model = unbeaten(steep)
        run_attack(attack, model, x, [0] * 3, 0.3, "l2")
        calls.append(model.calls[-1])
    torch.testing.assert_close(*calls, atol=1e-3, rtol=0)


def test_queries_by_hand():
    x = torch.full((3, 2, 8, 6), 0.5)
    assert Bandits(steps=7).cost(10) == (15, 0) and NES(steps=3, samples=4).cost(10) == (13, 0)
    for attack, expected_queries in ((Bandits(steps=7), 15), (NES(steps=3, samples=4), 13)):
        assert run_attack(attack, unbeaten(), x, [0] * 3, 0.1).costs.forwards.tolist() == [expected_queries] * 3
        for queries in (1, 2, 5, 6):
            assert run_attack(attack, unbeaten(), x, [0] * 3, 0.1, queries=queries).costs.forwards.tolist() == [queries] * 3


@pytest.mark.parametrize("attack", [Bandits(steps=100), NES(steps=20)], ids=str)
def test_fooled_samples_leave(attack):
    """A sample spends little after its first success: what was asked in the same breath, and no step more."""
    problem = linear_problem("image", "l2")
    ledger = run_attack(attack, problem.model, problem.batch.x, problem.batch.y, 3 * problem.margin, "l2")
    assert ledger.fooled.float().mean() > 0.8
    late = ledger.costs.forwards - ledger.best.first_success
    assert (late[ledger.fooled] < 20).all() and len(set(ledger.costs.forwards.tolist())) > 1


def test_nes_attacks_in_groups(monkeypatch):
    def run():
        model = unbeaten()
        run_attack(NES(steps=2, samples=4), model, torch.full((5, 2, 8, 6), 0.5), [0] * 5, 0.1)
        return model

    reference = run()
    monkeypatch.setattr("brinell.attacks.nes.ROOM", 2 * 4 * 96)
    parts = run()
    assert [len(call) for call in parts.calls] == [8, 8, 2, 8, 8, 2, 4, 4, 1]
    torch.testing.assert_close(parts.calls[2], reference.calls[-1][:2])


def test_settings_out_of_range(subtests):
    for attack, settings in [
        (Bandits, {"steps": 0}),
        (Bandits, {"exploration": 0.0}),
        (Bandits, {"tile": 0}),
        (Bandits, {"loss": "dlr"}),
        (NES, {"steps": 0}),
        (NES, {"samples": 5}),
        (NES, {"sigma": 0.0}),
        (NES, {"momentum": 1.0}),
        (NES, {"loss": "dlr"}),
    ]:
        with subtests.test(attack=attack, settings=settings):
            with pytest.raises(ValueError, match=next(iter(settings))):
                attack(**settings)
