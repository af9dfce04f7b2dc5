"""`brinell.attack` by hand on a wall, and inputs and labels of every type at the entries of the
package."""

import numpy as np
import pytest
import torch
from torch import nn

import brinell
from _refusals import refused
from brinell.core.errors import RequestError

X = torch.tensor([[0.38, 0.1], [0.48, 0.3], [0.20, 0.5], [0.55, 0.7], [0.31, 0.9]])
"""Margins 0.12, 0.02, 0.30, wrong from the start, 0.19."""
Y = torch.zeros(5, dtype=torch.int64)


class Wall(nn.Module):
    """Class 1 where the first value is above 0.5: logits of 20 times the distance on either side."""

    def forward(self, x):
        z = 20 * (x[:, 0] - 0.5)
        return torch.stack([-z, z], 1)


class Bands(nn.Module):
    """Class 0 below 0.3, class 1 from there to 0.7, class 2 above."""

    def forward(self, x):
        x0 = x[:, 0]
        return 20 * torch.stack([0.3 - x0, torch.minimum(x0 - 0.3, 0.7 - x0), x0 - 0.7], 1)


def attack(x=X, y=Y, stages="fgsm", model=None, **settings):
    return brinell.attack(
        model or Wall(), x, y, stages, **({"eps": 0.15, "answers": "logits"} | settings)
    )


def test_one_step_by_hand():
    """A step of 0.15; the margin is the lead of the wrong class, 40 times the way beyond the wall."""
    result = attack()
    assert result.success.tolist() == [True, True, False, True, False]
    assert result.x_adv[:, 0].tolist() == pytest.approx(
        [0.53, 0.63, 0.35, 0.55, 0.46]
    ) and torch.equal(result.x_adv[:, 1], X[:, 1])
    assert result.margin.tolist() == pytest.approx([1.2, 5.2, -6.0, 2.0, -1.6], rel=1e-4)
    assert result.distance.tolist() == pytest.approx([0.15, 0.15, 0.15, 0, 0.15])
    assert result.queries.tolist() == [2, 2, 2, 0, 2] and result.backwards.tolist() == [
        1,
        1,
        1,
        0,
        1,
    ]
    assert result.robust_accuracy == pytest.approx(0.4)


def test_later_attacks_take_what_is_left():
    result = attack(stages=("fgsm", "bim?steps=3"), eps=[0.15, 0.01, 0.15, 0.15, 0.2])
    assert result.success.tolist() == [True, False, False, True, True]
    assert result.queries.tolist() == [2, 6, 6, 0, 2] and result.backwards.tolist() == [
        1,
        4,
        4,
        0,
        1,
    ]
    assert result.distance.tolist() == pytest.approx([0.15, 0.01, 0.15, 0, 0.2])


def test_the_worst_input_is_sought_of_all():
    result = attack(worst=True)
    assert (
        result.success.tolist() == [True, True, False, True, False]
        and result.queries.tolist() == [2] * 5
    )
    assert result.x_adv[3, 0] == pytest.approx(0.7) and result.margin[3] == pytest.approx(
        8, rel=1e-4
    )
    with pytest.raises(RequestError, check=refused("engine.batch_attack.BatchAttack._stage")):
        attack(stages="fab", worst=True)


def test_a_minimal_attack_needs_no_budget():
    result = attack(stages="fab?steps=20", eps=None, norm="l2")
    assert result.success.all() and result.distance.tolist() == pytest.approx(
        [0.12, 0.02, 0.30, 0, 0.19], rel=0.02
    )
    with pytest.raises(RequestError, match="eps is missing, within which fgsm searches"):
        attack(stages=("fab", "fgsm"), eps=None)


def test_targets_are_one_class_or_one_a_sample():
    x, y = torch.tensor([[0.5, 0.5], [0.45, 0.5], [0.55, 0.5]]), np.ones(3, dtype=np.uint8)
    for targets, success in (
        (2, [True, False, True]),
        (np.array([2, 0, 0], dtype=np.uint8), [True, True, False]),
        ([2, 0, 0], [True, True, False]),
        (np.array([0, 0, 2]), [True, True, True]),
    ):
        result = attack(
            x, y, "pgd?steps=20&random_start=false", Bands(), targeted=targets, eps=0.21
        )
        assert result.success.tolist() == success
        reached = Bands()(result.x_adv).argmax(1)
        assert (reached == torch.as_tensor(np.zeros(3, int) + targets))[result.success].all()
    for targets, words in (
        (1, "is its own"),
        ([2, 1, 0], "is its own"),
        (3, "no target class"),
        ([2, 0, 3], "3"),
        ("x", "target class"),
    ):
        with pytest.raises(RequestError, match=words):
            attack(x, y, "fgsm", Bands(), targeted=targets, eps=0.2)


def test_a_budget_of_queries_ends_an_attack():
    assert attack(queries=1).success.tolist() == [False, False, False, True, False]
    assert attack(stages="bim?steps=9", queries=3).queries.tolist() == [3, 2, 3, 0, 3]


@pytest.mark.parametrize(
    "y", [Y.float(), Y - 1, Y[:3], Y.bool().numpy().astype(complex), ["a"] * 5, Y[:, None]], ids=str
)
def test_what_holds_no_classes_is_refused(y):
    with pytest.raises(RequestError):
        attack(y=y)
    with pytest.raises(RequestError):
        attack(y=Y + 2)
