"""FAB against Algorithm 1, against exact distances, and against its own account of what it costs."""

import pytest
import torch

from _helpers import Recorder, batch_of, mlp, run_attack, threat_of, threshold
from brinell.attacks import fab
from brinell.attacks.fab import FAB
from brinell.core.domain import Domain
from brinell.core.ledger import Ledger
from brinell.core.streams import Streams
from brinell.testing import LinearModel

NORMS = ["linf", "l2", "l1"]
SIX = Domain(kind="vector", shape=(6,))


# Algorithm 1


def nearest_point(x, w, gap, power):
    """In Linf (power 0) and L2 (power 1) by bisection: the step sign(w) |w|^power t, cut at the
    unit box.
    """
    way = w.sign() * w.abs() ** power * (1 if gap >= 0 else -1)

    def step(t):
        return torch.minimum(torch.maximum(t * way, -x), 1 - x)

    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if abs(step(middle) @ w) < abs(gap) else (low, middle)
    return step(high)


def fab_of_the_paper(function, x0, y, rivals, steps, norm, *, alpha_max=0.1, eta=1.05, beta=0.9):
    """Algorithm 1 for one sample, one run, in float64, transcribed: every point that is looked at,
    in order.
    """
    power, dual, order = {"linf": (0, 1, torch.inf), "l2": (1, 2, 2)}[norm]

    def differences(x):
        leaf = x.clone().requires_grad_()
        z = function(leaf[None])[0]
        return [
            ((z[s] - z[y]).item(), torch.autograd.grad(z[s] - z[y], leaf, retain_graph=True)[0])
            for s in rivals
        ]

    x, points = x0, [x0]
    for _ in range(steps):
        value, w = min(differences(x), key=lambda pair: abs(pair[0]) / pair[1].norm(p=dual))
        delta = nearest_point(x, w, -value, power)
        delta_0 = nearest_point(x0, w, -value - w @ (x0 - x), power)
        lengths = delta.norm(p=order), delta_0.norm(p=order)
        alpha = min(lengths[0] / (lengths[0] + lengths[1]), alpha_max)
        x = ((1 - alpha) * (x + eta * delta) + alpha * (x0 + eta * delta_0)).clamp(0, 1)
        points.append(x)
        if function(x[None]).argmax() != y:
            x = (1 - beta) * x0 + beta * x
            points.append(x)
    return torch.stack(points)


@pytest.mark.parametrize(("norm", "targets"), [("linf", 0), ("linf", 1), ("l2", 0), ("l2", 1)])
def test_goes_where_algorithm_1_goes(norm, targets):
    for seed in range(4):
        check_path(norm, seed, targets)


def check_path(norm, seed, targets):
    """The points that are looked at are those of the transcription."""
    module = mlp(6, 4, seed)
    model = Recorder(module, SIX, classes=4)
    x0 = torch.rand(6, generator=torch.Generator().manual_seed(seed))
    ranked = module(x0[None])[0].argsort(descending=True).tolist()
    y, rivals = ranked[0], ranked[1:]
    # One sample, so that calls come in the order of the paper.
    run_attack(FAB(steps=12, targets=targets), model, x0[None], [y], 1.0, norm, minimal=True)
    expected = fab_of_the_paper(
        module.double(), x0.double(), y, rivals[: targets or None], 12, norm
    )
    # The clean input came first, for its ranking. What was tested and then linearised at the same
    # point was shown twice.
    inputs = torch.cat(model.calls[1:] if targets else model.calls).double()
    inputs = inputs[torch.cat([torch.tensor([True]), (inputs[1:] != inputs[:-1]).any(1)])]
    # Where a run comes to stand, at a kink of the boundary, rounding decides on which side, and so
    # where it goes from there.
    unchanged = (expected[1:] - expected[:-1]).abs().amax(1) < 1e-3
    common_length = int(unchanged.nonzero()[0]) + 1 if unchanged.any() else len(expected) - 1
    assert common_length >= 3
    torch.testing.assert_close(inputs[:common_length], expected[:common_length], atol=1e-5, rtol=0)


def weighted(*rows):
    """Logits 0 and, for each row (offset, weights), a linear one."""
    offsets, weights = (
        torch.tensor([row[0] for row in rows]),
        torch.tensor([row[1] for row in rows]),
    )
    return lambda x: torch.cat([torch.zeros(len(x), 1), offsets + x @ weights.T], 1)


TWO_RIVALS = weighted((-1.1, [1.0, 1.0, 0.0]), (-1.06, [0.0, 0.0, 2.0]))
"""From 0.5 everywhere: class 1 leads after 0.05 in Linf or 0.0707 in L2, class 2 after 0.03 in
either."""
ALMOST = weighted((-0.86, [1.0, 0.0, 0.0]), (-2.12, [1.0, 1.0, 1.0]))
"""Class 1 is the more likely at -0.36 against -0.62, and the farther away in Linf: 0.36 against
0.2067."""


def test_the_first_step_by_hand(subtests):
    """Untargeted to the nearest boundary, targeted to the most likely class; from the clean input
    both projections are one.
    """
    for targets, function, first in [
        (0, TWO_RIVALS, [0.5, 0.5, 0.5 + 1.05 * 0.03]),
        (1, TWO_RIVALS, [0.5, 0.5, 0.5 + 1.05 * 0.03]),
        (0, ALMOST, [0.5 + 1.05 * 0.62 / 3] * 3),
        (1, ALMOST, [0.5 + 1.05 * 0.36, 0.5, 0.5]),
    ]:
        with subtests.test(targets=targets, function=function, first=first):
            model = Recorder(function, Domain(kind="vector", shape=(3,)), classes=3)
            run_attack(FAB(steps=1, targets=targets), model, [[0.5] * 3], [0], 1.0, minimal=True)
            torch.testing.assert_close(model.calls[-1], torch.tensor([first]), atol=1e-6, rtol=0)


# Exact distances


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("targets", [0, 9])
def test_finds_the_nearest_of_many_boundaries(norm, targets):
    """Eight classes that compete: the nearest boundary is not always that of the second most likely
    class.
    """
    rng = torch.Generator().manual_seed(0)
    domain = Domain(kind="vector", shape=(40,), low=-50.0, high=50.0)
    model = LinearModel(torch.randn(8, 40, generator=rng), torch.randn(8, generator=rng), domain)
    x = torch.randn(50, 40, generator=rng)
    logits = model.predict(x)
    batch = batch_of(x, logits.argmax(1))
    margin = model.margin(x, batch.y, norm)
    threat = threat_of(10 * margin, norm, domain)
    ledger = Ledger(model, batch, threat, minimal=True)
    FAB(steps=30, targets=targets)(ledger.oracle(), batch, threat, Streams.of(0, batch.ids))
    assert (ledger.best.distance <= 1.02 * margin).all() and (
        ledger.best.distance >= 0.999 * margin
    ).all()
    second = logits.topk(2, 1).indices[:, 1]
    rival = model.predict(ledger.best.closest).scatter(1, batch.y[:, None], -torch.inf).argmax(1)
    assert norm == "l1" or (rival != second).any()


def test_bounds_of_each_channel_are_kept():
    """The nearest way out without bounds is barred by them; what is left is exact."""
    domain = Domain(kind="signal", shape=(2, 1), low=(-1.0, 0.0), high=(0.01, 5.0))
    model = Recorder(
        lambda x: torch.stack([torch.zeros(len(x)), x[:, 0, 0] + x[:, 1, 0] - 0.3], 1), domain
    )
    ledger = run_attack(FAB(steps=20), model, [[[0.0], [0.0]]], [0], 1.0, minimal=True)
    assert (
        ledger.best.distance.item() == pytest.approx(0.29, rel=0.02)
        and ledger.best.distance.item() > 0.29
    )
    assert (torch.cat(model.calls)[:, 0] <= 0.01 + 1e-6).all()


# Costs and bookkeeping


class Never:
    """A slope that never reaches the boundary inside the box."""

    def __new__(cls):
        return Recorder(lambda x: torch.stack([torch.full((len(x),), 50.0), x.sum(1)], 1))


def test_costs_at_most_what_it_says(subtests):
    for targets in [0, 1, 9]:
        for steps in [1, 2, 7]:
            with subtests.test(targets=targets, steps=steps):
                attack = FAB(steps=steps, targets=targets, restarts=2)
                for seed in range(4):
                    module = mlp(6, 4, seed)
                    x = torch.rand(20, 6, generator=torch.Generator().manual_seed(seed))
                    model = Recorder(module, SIX, classes=4)
                    ledger = run_attack(attack, model, x, module(x).argmax(1), 1.0, minimal=True)
                    forwards, backwards = attack.cost(4)
                    assert (ledger.costs.forwards <= forwards).all() and (
                        ledger.costs.backwards <= backwards
                    ).all()
                    assert model.queries == ledger.costs.forwards.sum() + ledger.confirmations.sum()
                    assert (
                        ledger.costs.forwards.max() == forwards
                        and ledger.costs.backwards.max() == backwards
                    )


@pytest.mark.parametrize("name", ["HELD", "BLOCK"])
def test_portions_change_nothing(name, monkeypatch):
    module = mlp(6, 4)
    x = torch.rand(9, 6, generator=torch.Generator().manual_seed(0))
    distances = []
    for _ in range(2):
        ledger = run_attack(
            FAB(steps=10, restarts=2),
            Recorder(module, SIX, classes=4),
            x,
            module(x).argmax(1),
            1.0,
            minimal=True,
        )
        distances.append(ledger)
        monkeypatch.setattr(fab, name, 1)
    torch.testing.assert_close(
        distances[0].best.distance, distances[1].best.distance, rtol=1e-4, atol=1e-6
    )


def test_stops_at_eps_where_it_is_told_to():
    """Half of the samples lie within eps of the boundary: they leave at once, and the others do all
    they would do alone.
    """
    x = torch.stack([torch.linspace(0.3, 0.49, 12), torch.linspace(0.05, 0.95, 12)], 1)
    distant, close = (
        run_attack(
            FAB(steps=20, stop_at_eps=stop),
            Recorder(threshold(0.5)),
            x,
            [0] * 12,
            0.1,
            minimal=True,
        )
        for stop in (False, True)
    )
    assert torch.equal(distant.fooled, close.fooled) and 3 < int(distant.fooled.sum()) < 9
    assert (close.costs.forwards[close.fooled] == close.best.first_success[close.fooled]).all()
    assert torch.equal(close.costs.forwards[~close.fooled], distant.costs.forwards[~distant.fooled])
    assert (distant.best.distance[distant.fooled] <= close.best.distance[close.fooled]).all()


def test_restarts_begin_at_half_the_closest_find_or_eps():
    """The find is at 0.1, below eps; and where there is none, eps is what counts."""
    for make, expected in ((lambda: Recorder(threshold(0.5)), None), (Never, 0.15)):
        first_oracle, second_oracle = make(), make()
        distance = run_attack(
            FAB(steps=3), first_oracle, [[0.4, 0.4]], [0], 0.15, minimal=True
        ).best.distance.item()
        run_attack(FAB(steps=3, restarts=2), second_oracle, [[0.4, 0.4]], [0], 0.15, minimal=True)
        start = second_oracle.calls[len(first_oracle.calls)]
        assert (start - 0.4).abs().max().item() == pytest.approx(
            (expected or distance) / 2, rel=1e-4
        )
