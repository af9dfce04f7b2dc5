"""Margins against probabilities: an input is adversarial exactly where its criterion says so, and
aims change no success.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from brinell.core.criterion import MISCLASSIFIED, Probability, Targeted
from brinell.core.errors import RequestError
from brinell.rlab.episodes import any_class_counts, margin_towards

X = torch.zeros(1)
LOGITS = st.lists(st.floats(-20, 20, width=32), min_size=3, max_size=3).map(
    lambda row: torch.tensor([row])
)


@given(LOGITS, st.integers(0, 2))
def test_an_error_is_a_wrong_class_in_the_lead(logits, label):
    rival_logits = [value for index, value in enumerate(logits[0].tolist()) if index != label]
    margin = MISCLASSIFIED.margin(logits, torch.tensor([label]), X).item()
    lead = max(rival_logits) - logits[0, label].item()
    assert margin == pytest.approx(lead, abs=1e-5)


def test_a_class_that_is_aimed_at_is_measured_until_another_leads():
    logits, y = (
        torch.tensor([[3.0, 2.0, 1.0]] * 3 + [[3.0, 4.0, 1.0]]),
        torch.zeros(4, dtype=torch.int64),
    )
    margin = MISCLASSIFIED.margin(logits, y, X)
    assert margin_towards(margin, logits, y, torch.tensor([-1, 1, 2, 2])).tolist() == [
        -1,
        -1,
        -2,
        1,
    ]


@given(LOGITS, st.integers(0, 2), st.floats(0.05, 0.95))
def test_the_true_class_below_a_threshold_and_out_of_the_lead(logits, label, threshold):
    p = logits.double().softmax(1)[0]
    wrong = max(p[index] for index in range(3) if index != label)
    if min(abs(p[label] - threshold), abs(wrong - p[label])) < 1e-4:
        return
    margin = Probability(true_below=threshold).margin(logits, torch.tensor([label]), X).item()
    assert (margin > 0) == bool(p[label] < threshold and wrong > p[label])


@given(LOGITS, st.integers(0, 2), st.integers(0, 2), st.floats(0.05, 0.95))
def test_a_false_positive_is_a_chosen_class_above_a_threshold(logits, label, target, threshold):
    p = logits.double().softmax(1)[0, target]
    if abs(p - threshold) < 1e-4:
        return
    margin = (
        Probability(wrong_class=target, wrong_above=threshold)
        .margin(logits, torch.tensor([label]), X)
        .item()
    )
    assert (margin > 0) == bool(p > threshold)


def test_margins_are_exact_where_probabilities_are_one():
    """Log-odds by hand: 200 - log(2) against two zeros; a probability in float32 would be 1 and its
    odds infinite.
    """
    logits = torch.tensor([[200.0, 0.0, 0.0]])
    margin = Probability(wrong_class=0, wrong_above=0.9).margin(logits, torch.tensor([1]), X)
    assert margin.item() == pytest.approx(200 - 0.6931 - 2.1972, abs=1e-3)


def test_thresholds_outside_zero_to_one_are_refused(subtests):
    for value in [0.0, 1.0, -0.1, 1.5, float("nan")]:
        for settings in [("true_below",), ("wrong_above", "wrong_class")]:
            with subtests.test(value=value, settings=settings):
                settings_given = {settings[0]: value} | dict.fromkeys(settings[1:], 1)
                with pytest.raises(
                    RequestError, match=rf"{settings[0]} is .*must lie between 0 and 1"
                ):
                    Probability(**settings_given)


def test_criteria_that_say_too_little_or_too_much_are_refused():
    for half in ({"wrong_class": 1}, {"wrong_above": 0.5}):
        with pytest.raises(RequestError, match="needs both wrong_class and wrong_above"):
            Probability(**half)
    for settings in ({}, {"true_below": 0.5, "wrong_class": 1, "wrong_above": 0.5}):
        with pytest.raises(RequestError, match="one of the two is the criterion"):
            Probability(**settings)


def test_aims_are_chosen_where_any_class_will_do():
    assert any_class_counts(MISCLASSIFIED) and any_class_counts(Probability(true_below=0.5))
    assert not any_class_counts(
        Probability(wrong_class=1, wrong_above=0.5)
    ) and not any_class_counts(Targeted(torch.zeros(1)))
