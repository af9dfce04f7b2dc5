"""RayS against exact margins, its questions by hand, and its costs."""

import pytest
import torch

from _helpers import Recorder, run_attack, threshold
from brinell.attacks.ray_s import RayS
from brinell.core.domain import Domain
from brinell.testing.linear import linear_problem


def test_its_questions_by_hand():
    """All ones are tried at the far corner; bisected; then stage 0 flips all, and stage 1 the first half and the second."""
    model = Recorder(threshold(0.5))  # the first value decides
    run_attack(RayS(steps=40), model, [[0.25, 0.5]], [0], 1.0, "linf")
    calls = torch.cat(model.calls)
    torch.testing.assert_close(calls[0], torch.ones(2))
    torch.testing.assert_close(calls[1], torch.tensor([0.75, 1.0]))  # radius 1/2, second value clamped
    torch.testing.assert_close(calls[2], torch.tensor([0.5, 0.75]))  # radius 1/4
    signs = [tuple((call - torch.tensor([0.25, 0.5])).sign().tolist()) for call in calls]
    turns = [sign for number, sign in enumerate(signs) if number == 0 or sign != signs[number - 1]]
    assert turns[:4] == [(1, 1), (-1, -1), (-1, 1), (1, -1)]


def test_a_model_that_never_errs_is_asked_once_a_direction():
    model = Recorder(lambda x: torch.stack([torch.ones(len(x)), torch.zeros(len(x))], 1))
    ledger = run_attack(RayS(steps=9), model, [[0.2, 0.4], [0.3, 0.3]], [0, 0], 1.0, "linf")
    assert ledger.costs.forwards.tolist() == [9, 9]
    assert not ledger.fooled.any()
    assert ((torch.cat(model.calls) == 0) | (torch.cat(model.calls) == 1)).all()  # corners of the box


def test_its_costs_are_its_steps():
    attack = RayS(steps=50)
    assert attack.cost(10) == (50, 0)
    problem = linear_problem("signal", "linf", n=6)
    for queries in (1, 7, 33):
        ledger = run_attack(attack, problem.model, problem.batch.x, problem.batch.y, 10.0, "linf", queries=queries)
        assert (ledger.costs.forwards == queries).all()
    assert run_attack(attack, problem.model, problem.batch.x, problem.batch.y, 10.0, "linf").costs.forwards.tolist() == [50] * 6


def test_a_sample_does_the_same_alone():
    problem = linear_problem("video", "linf", n=5)
    batched = run_attack(RayS(steps=300), problem.model, problem.batch.x, problem.batch.y, 10.0, "linf")
    single = run_attack(RayS(steps=300), problem.model, problem.batch.x[2:3], problem.batch.y[2:3], 10.0, "linf")
    torch.testing.assert_close(batched.best.distance[2:3], single.best.distance)


def test_bounds_are_kept():
    domain = Domain(kind="signal", shape=(2, 20), low=(0.25, 0.0), high=(0.8, 0.55))
    model = Recorder(lambda x: torch.stack([x.flatten(1).sum(1), 40 - x.flatten(1).sum(1) - 22], 1), domain)
    x = domain.clamp(torch.rand(3, 2, 20, generator=torch.Generator().manual_seed(0)) * 0.2 + 0.35)
    ledger = run_attack(RayS(steps=60), model, x, model.function(x).argmax(1), 10.0, "linf")
    low, high = domain.bounds()
    calls = torch.cat(model.calls)
    assert (calls >= low).all()
    assert (calls <= high).all()
    assert ledger.fooled.any()


def test_a_step_is_the_least():
    with pytest.raises(ValueError, match="steps"):
        RayS(steps=0)
