"""RayS against exact margins, its questions by hand, and its costs."""

import torch

from _helpers import Recorder, run_attack, threshold
from brinell.attacks.ray_s import RayS


def test_its_questions_by_hand():
    """All ones are tried at the far corner; bisected; then stage 0 flips all, and stage 1 the first
    half and the second.
    """
    model = Recorder(threshold(0.5))  # the first value decides
    run_attack(RayS(steps=40), model, [[0.25, 0.5]], [0], 1.0, "linf")
    calls = torch.cat(model.calls)
    torch.testing.assert_close(calls[0], torch.ones(2))
    torch.testing.assert_close(
        calls[1], torch.tensor([0.75, 1.0])
    )  # radius 1/2, second value clamped
    torch.testing.assert_close(calls[2], torch.tensor([0.5, 0.75]))  # radius 1/4
    signs = [tuple((call - torch.tensor([0.25, 0.5])).sign().tolist()) for call in calls]
    turns = [sign for number, sign in enumerate(signs) if number == 0 or sign != signs[number - 1]]
    assert turns[:4] == [(1, 1), (-1, -1), (-1, 1), (1, -1)]


def test_a_model_that_never_errs_is_asked_once_a_direction():
    """All ones, all flipped, then each of the two values."""
    model = Recorder(lambda x: torch.stack([torch.ones(len(x)), torch.zeros(len(x))], 1))
    ledger = run_attack(RayS(steps=9), model, [[0.2, 0.4], [0.3, 0.3]], [0, 0], 1.0, "linf")
    assert ledger.costs.forwards.tolist() == [4, 4]
    assert not ledger.fooled.any()
    assert (
        (torch.cat(model.calls) == 0) | (torch.cat(model.calls) == 1)
    ).all()  # corners of the box


def test_it_ends_where_nothing_comes_nearer_and_loses_nothing():
    """A search with more steps than it needs ends at a place where no single sign helps."""
    rng = torch.Generator().manual_seed(0)
    for d in (1, 3, 7):
        weights = torch.randn(d, generator=rng)
        x = torch.rand(4, d, generator=rng)

        def answer(x, weights=weights):
            side = ((x - 0.5) @ weights) ** 3 - 0.01 * (9 * x).sin().sum(1)
            return torch.stack([torch.zeros(len(x)), side], 1)

        labels = answer(x).argmax(1).tolist()
        runs = [
            run_attack(RayS(steps=steps), Recorder(answer), x.tolist(), labels, 1.0, "linf")
            for steps in (4000, 8000)
        ]
        assert runs[0].costs.forwards.max() < 4000
        assert runs[0].costs.forwards.tolist() == runs[1].costs.forwards.tolist()

        # The point nearest to the boundary along each of the neighbours is no nearer.
        for row in torch.nonzero(runs[0].best.distance.isfinite())[:, 0].tolist():
            change = (runs[0].best.closest[row] - x[row]).sign()
            radius = float(runs[0].best.distance[row])
            neighbours = change * (1 - 2 * torch.eye(d))
            points = (x[row] + 0.99 * radius * neighbours).clamp(0, 1)
            assert (answer(points).argmax(1) == labels[row]).all()
