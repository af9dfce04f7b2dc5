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
    model = Recorder(lambda x: torch.stack([torch.ones(len(x)), torch.zeros(len(x))], 1))
    ledger = run_attack(RayS(steps=9), model, [[0.2, 0.4], [0.3, 0.3]], [0, 0], 1.0, "linf")
    assert ledger.costs.forwards.tolist() == [9, 9]
    assert not ledger.fooled.any()
    assert (
        (torch.cat(model.calls) == 0) | (torch.cat(model.calls) == 1)
    ).all()  # corners of the box
