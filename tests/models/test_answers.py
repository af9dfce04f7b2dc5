import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from brinell.core.losses import cross_entropy
from brinell.models import _answers as answers


@given(st.lists(st.floats(1e-30, 1.0), min_size=2, max_size=6))
def test_the_softmax_of_the_logits_is_the_probability_again(weights):
    p = torch.tensor(weights, dtype=torch.float64)
    p = (p / p.sum())[None]
    logits = answers.logits_of_probabilities(p)
    assert logits.dtype == torch.float32
    assert torch.allclose(logits.double().softmax(1), p, atol=1e-6)
    assert torch.allclose(
        cross_entropy(logits, torch.tensor([0])).double(), -p[:, 0].log(), atol=1e-5
    )


def test_none_is_a_finite_logit():
    logits = answers.logits_of_probabilities(torch.tensor([[1.0, 0.0, 0.0]]))
    assert logits[0].tolist() == pytest.approx([0, -87.3365, -87.3365], abs=1e-3)


def test_a_class_alone_is_a_certainty():
    logits = answers.logits_of_labels(torch.tensor([2, 0]), 3)
    assert logits.argmax(1).tolist() == [2, 0] and logits.softmax(1).amax(1).tolist() == [1, 1]
    assert not answers.are_probabilities(logits)


def test_which_answers_are_probabilities():
    rows = [
        ([[0.2, 0.8], [1.0, 0.0]], True),
        ([[0.2, 0.8], [0.9, 0.2]], False),
        ([[-0.2, 1.2], [0.5, 0.5]], False),
        ([[1.0], [1.0]], False),
    ]
    for values, expected in rows:
        assert answers.are_probabilities(torch.tensor(values)) is expected
