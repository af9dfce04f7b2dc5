"""Criteria of classes: margins against their definitions in double precision, and what attacks are
shown of them.
"""

import math

import pytest
import torch

from brinell.core import losses
from brinell.core.criterion import (
    MISCLASSIFIED,
    NotRejected,
    Probability,
    Targeted,
    Undetected,
    Worst,
    WrittenProbability,
    log_odds,
)
from brinell.core.errors import RequestError

N, CLASSES = 60, 5
DRAW = torch.Generator().manual_seed(0)
LOGITS = 3 * torch.randn(N, CLASSES, generator=DRAW)
Y = torch.randint(CLASSES, (N,), generator=DRAW)
X = torch.rand(N, 4, generator=DRAW)


def largest_but(row, *classes):
    return max(value for k, value in enumerate(row) if k not in classes)


def odds(row, k):
    """Log-odds of a class."""
    p = [math.exp(value) for value in row]
    return math.log(p[k] / (sum(p) - p[k]))


def logit(p):
    return math.log(p / (1 - p))


def by_row(function):
    """(n,): a function of the logits of a sample and its class, in Python's numbers."""
    return torch.tensor(
        [function(row, y) for row, y in zip(LOGITS.double().tolist(), Y.tolist(), strict=True)]
    ).float()


DEFINITIONS = [
    (MISCLASSIFIED, lambda row, y: largest_but(row, y) - row[y]),
    (NotRejected(2), lambda row, y: largest_but(row, y, 2) - max(row[y], row[2])),
    (NotRejected(0), lambda row, y: largest_but(row, y, 0) - max(row[y], row[0])),
    (
        Probability(true_below=0.1),
        lambda row, y: min(largest_but(row, y) - row[y], logit(0.1) - odds(row, y)),
    ),
    (
        Probability(true_below=0.8),
        lambda row, y: min(largest_but(row, y) - row[y], logit(0.8) - odds(row, y)),
    ),
    (Probability(wrong_class=3, wrong_above=0.7), lambda row, y: odds(row, 3) - logit(0.7)),
]


def test_margins_are_those_of_the_definitions():
    for criterion, definition in DEFINITIONS:
        margin, expected = criterion.margin(LOGITS, Y, X), by_row(definition)
        torch.testing.assert_close(margin, expected, rtol=1e-4, atol=1e-4, msg=str(criterion))
        verdict = criterion.is_met(margin, LOGITS, Y)
        assert torch.equal(verdict, expected > 1e-4) and 0 < verdict.sum() < N, criterion
        assert (
            criterion.select(slice(2, 5)).describe() == criterion.describe()
            and criterion.classes_for_attack(7) == 7
        )


def test_what_attacks_see_leads_by_the_margin():
    """The criterion of misclassification decides on what attacks see as the criterion does on the
    model's logits."""
    thresholds = (
        WrittenProbability(true_below=0.1, text="true<0.1"),
        WrittenProbability(wrong_class=3, wrong_above=0.7, text="class=3>0.7"),
    )
    for criterion in (*thresholds, NotRejected(2)):
        covers_all = criterion is not thresholds[1]
        rows = torch.ones(N, dtype=torch.bool) if covers_all else Y != 3
        logits, y = LOGITS[rows], Y[rows]
        view = criterion.logits_for_attack(logits, y)
        assert view.shape == logits.shape and criterion.for_attack() in (MISCLASSIFIED, criterion)
        torch.testing.assert_close(
            losses.margin(view, y), criterion.margin(logits, y, X[rows]), rtol=1e-4, atol=1e-4
        )
        for name, loss in losses.LOSSES.items():
            torch.testing.assert_close(criterion.loss(loss, logits, y), loss(view, y), msg=name)
    view = NotRejected(2).logits_for_attack(LOGITS, Y)
    rejected = view[Y != 2]
    assert (rejected[:, 2] < rejected[:, [0, 1, 3, 4]].amin(1)).all(), (
        "no attack aims at the reject class"
    )
    classes = [k for k in range(CLASSES) if k != 2]
    changed = (view != LOGITS)[:, classes] & (Y[:, None] != torch.tensor(classes))
    assert not changed.any(), "other classes keep their logits"
    view = thresholds[1].logits_for_attack(LOGITS[Y == 0], Y[Y == 0])
    assert (view[:, [1, 2, 4]].amax(1) < view[:, [0, 3]].amin(1)).all(), (
        "nor at a class that is not the criterion's"
    )
    view = thresholds[0].logits_for_attack(LOGITS, Y)
    assert torch.equal(view.scatter(1, Y[:, None], 0.0), LOGITS.scatter(1, Y[:, None], 0.0))


def test_targets_follow_their_rows():
    targets = (Y + 1) % CLASSES
    criterion = Targeted(targets)
    margin = criterion.margin(LOGITS, Y, X)
    expected = torch.tensor(
        [
            row[t] - largest_but(row, t)
            for row, t in zip(LOGITS.tolist(), targets.tolist(), strict=True)
        ]
    )
    torch.testing.assert_close(margin, expected)
    assert torch.equal(criterion.is_met(margin, LOGITS, Y), LOGITS.argmax(1) == targets)
    for loss in losses.LOSSES.values():
        assert torch.equal(criterion.loss(loss, LOGITS, Y), -loss(LOGITS, targets))
    for rows in (slice(3, 9), torch.tensor([5, 2]), Y == 1):
        assert torch.equal(
            criterion.select(rows).margin(LOGITS[rows], Y[rows], X[rows]), margin[rows]
        )


def test_an_input_is_undetected_where_it_is_wrong_and_raises_no_alarm():
    criterion = Undetected(lambda x: x.sum(1), threshold=2.0)
    margin, lead = criterion.margin(LOGITS, Y, X), losses.margin(LOGITS, Y)
    wrong = LOGITS.argmax(1) != Y
    torch.testing.assert_close(margin[wrong], 2 - X.sum(1)[wrong])
    assert (margin[~wrong] < 0).all() and torch.allclose(margin[~wrong], lead[~wrong], atol=1e-4)
    assert criterion.is_met(torch.tensor([-0.1, 0.0, 0.1]), LOGITS[:3], Y[:3]).tolist() == [
        False,
        True,
        True,
    ]
    level = torch.tensor([[1.0, 1.0]])
    assert criterion.margin(level, torch.tensor([0]), X[:1]) < 0, "a lead of nothing is no success"
    assert torch.equal(
        criterion.loss(losses.cross_entropy, LOGITS, Y), losses.cross_entropy(LOGITS, Y)
    )


def test_the_worst_case_has_no_success_and_the_margins_of_its_criterion():
    of, margin = NotRejected(1), NotRejected(1).margin(LOGITS, Y, X)
    worst = Worst(of)
    assert (
        torch.equal(worst.margin(LOGITS, Y, X), margin)
        and not worst.is_met(margin, LOGITS, Y).any()
    )
    assert torch.equal(worst.logits_for_attack(LOGITS, Y), of.logits_for_attack(LOGITS, Y))
    assert torch.equal(worst.loss(losses.margin, LOGITS, Y), of.loss(losses.margin, LOGITS, Y))
    assert (
        worst.for_attack() == worst
        and worst.select(slice(0, 2)) == worst
        and worst.classes_for_attack(4) == 4
    )
    part = Worst(Targeted(Y)).select(torch.tensor([4, 1]))
    assert part.of.classes.tolist() == Y[[4, 1]].tolist()
    with pytest.raises(RequestError):
        worst.check(1)


def test_log_odds_are_exact_where_probabilities_are_not():
    assert log_odds(torch.tensor([[50.0, 0.0, 0.0]]), torch.tensor([0])).item() == pytest.approx(
        50 - math.log(2)
    )
    assert log_odds(torch.tensor([[-90.0, 0.0]]), torch.tensor([0])).item() == pytest.approx(-90)


def test_the_class_that_the_answer_names_decides_to_the_last_digit():
    """Of equal logits the first leads.

    Offsets, factors and masked classes leave the slack of two scores what it is.
    """
    logits = torch.tensor([[1.0, 1.0 + 2.0**-23, -1e9]] * 2 + [[1.0, 1.0, -1e9]] * 2)
    y = torch.tensor([0, 1, 0, 1])
    expected = [True, False, False, True]
    for criterion in (MISCLASSIFIED, NotRejected(2), Targeted(1 - y)):
        assert criterion.is_met(criterion.margin(logits, y, logits), logits, y).tolist() == expected
    assert bool((losses.rounding(logits, y) < 0.01).all()) and torch.equal(
        losses.rounding(1024 * logits, y), 1024 * losses.rounding(logits, y)
    )


def test_criteria_that_a_model_cannot_meet_are_refused():
    fitting = [
        (NotRejected(2), 3),
        (NotRejected(0), 3),
        (Targeted(torch.tensor([0, 4])), 5),
        (Targeted(torch.zeros(0, dtype=int)), 1),
        (Probability(wrong_class=4, wrong_above=0.5), 5),
        (Probability(wrong_class=0, wrong_above=0.5), 2),
        (Probability(true_below=0.5), 2),
        (MISCLASSIFIED, 2),
    ]
    for criterion, classes in fitting:
        criterion.check(classes)
    unfitting = [
        (NotRejected(3), 3),
        (NotRejected(-1), 3),
        (NotRejected(1), 2),
        (Targeted(torch.tensor([0, 5])), 5),
        (Targeted(torch.tensor([-1, 0])), 5),
        (Probability(wrong_class=5, wrong_above=0.5), 5),
        (Probability(wrong_class=-1, wrong_above=0.5), 5),
    ]
    for criterion, classes in unfitting:
        with pytest.raises(RequestError, match=f"classes 0 to {classes - 1}"):
            criterion.check(classes)
    for settings in (
        {},
        {"true_below": 0.0},
        {"true_below": 1.0},
        {"wrong_above": 0.5},
        {"wrong_class": 1},
    ):
        with pytest.raises(RequestError):
            Probability(**settings)
    with pytest.raises(RequestError):
        Probability(true_below=0.5, wrong_class=1, wrong_above=0.5)
    with pytest.raises(RequestError, match="wrong_above is 1.5"):
        Probability(wrong_class=1, wrong_above=1.5)


def test_descriptions_say_every_setting():
    described = [
        (MISCLASSIFIED, {"name": "misclassified"}),
        (NotRejected(2), {"name": "misclassified and not rejected", "reject_class": 2}),
        (Targeted(Y), {"name": "targeted"}),
        (
            WrittenProbability(wrong_class=3, wrong_above=0.7, text="class=3>0.7"),
            {
                "name": "probability",
                "true_below": None,
                "wrong_class": 3,
                "wrong_above": 0.7,
                "text": "class=3>0.7",
            },
        ),
        (
            Probability(true_below=0.2),
            {"name": "probability", "true_below": 0.2, "wrong_class": None, "wrong_above": None},
        ),
        (Undetected(torch.sum, 1.5), {"name": "undetected", "threshold": 1.5}),
        (
            Worst(NotRejected(2)),
            {"name": "worst", "of": {"name": "misclassified and not rejected", "reject_class": 2}},
        ),
    ]
    assert [criterion.describe() for criterion, _ in described] == [
        description for _, description in described
    ]
