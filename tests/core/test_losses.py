import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from brinell.core import losses


def test_cross_entropy_by_hand():
    logits = torch.tensor([[math.log(1.0), math.log(3.0), math.log(4.0)]])
    torch.testing.assert_close(
        losses.cross_entropy(logits, torch.tensor([1])), torch.tensor([math.log(8 / 3)])
    )
    assert losses.cross_entropy(logits.repeat(2, 1), torch.tensor([0, 2])).shape == (2,)


def test_margin_by_hand(subtests):
    for logits, y, expected in [
        ([5.0, 3.0, 1.0], 0, -2.0),
        ([5.0, 3.0, 1.0], 1, 2.0),
        ([5.0, 3.0, 1.0], 2, 4.0),
        ([2.0, 2.0], 0, 0.0),
    ]:
        with subtests.test(logits=logits, y=y, expected=expected):
            assert losses.margin(torch.tensor([logits]), torch.tensor([y])).tolist() == [expected]


def test_dlr_by_hand(subtests):
    for logits, y, expected in [
        # Croce & Hein 2020, eq. 6: -(z_y - max other) / (z_1st - z_3rd), logits sorted downwards.
        ([7.0, 4.0, 2.0, 1.0], 0, -(7 - 4) / (7 - 2)),
        ([7.0, 4.0, 2.0, 1.0], 1, -(4 - 7) / (7 - 2)),
        ([7.0, 4.0, 2.0, 1.0], 3, -(1 - 7) / (7 - 2)),
        ([4.0, 1.0, 7.0, 2.0], 2, -(7 - 4) / (7 - 2)),
        # Three classes: the third largest is the smallest.
        ([5.0, 3.0, 1.0], 0, -(5 - 3) / (5 - 1)),
        ([5.0, 3.0, 1.0], 2, -(1 - 5) / (5 - 1)),
        # Two classes: the plain margin.
        ([5.0, 3.0], 0, -2.0),
        ([5.0, 3.0], 1, 2.0),
    ]:
        with subtests.test(logits=logits, y=y, expected=expected):
            assert losses.dlr(torch.tensor([logits]), torch.tensor([y])).tolist() == pytest.approx(
                [expected]
            )


@given(st.integers(3, 8), st.integers(0, 1000), st.floats(0.1, 100), st.floats(-50, 50))
def test_dlr_does_not_change_with_scale_or_shift(classes, seed, scale, shift):
    rng = torch.Generator().manual_seed(seed)
    logits, y = (
        torch.randn(5, classes, generator=rng, dtype=torch.float64),
        torch.randint(classes, (5,), generator=rng),
    )
    torch.testing.assert_close(
        losses.dlr(scale * logits + shift, y), losses.dlr(logits, y), rtol=1e-5, atol=1e-7
    )


@pytest.mark.parametrize("name", sorted(losses.LOSSES))
@given(st.integers(2, 6), st.integers(0, 1000))
def test_larger_is_more_wrong(name, classes, seed):
    """Of any logits, the label with the largest logit has the least loss; and only a wrong answer
    has a margin above 0.
    """
    rng = torch.Generator().manual_seed(seed)
    logits = torch.randn(1, classes, generator=rng).expand(classes, -1)
    loss = losses.LOSSES[name](logits, torch.arange(classes))
    right = int(logits[0].argmax())
    assert int(loss.argmin()) == right
    if name != "ce":
        assert (loss > 0).tolist() == [label != right for label in range(classes)]


def test_level_logits_do_not_divide_by_zero():
    logits = torch.zeros(1, 4, requires_grad=True)
    loss = losses.dlr(logits, torch.tensor([0]))
    (grad,) = torch.autograd.grad(loss.sum(), logits)
    assert loss.item() == 0.0 and torch.isfinite(grad).all()


@given(
    st.integers(2, 10),
    st.integers(0, 1000),
    st.integers(-30, 30),
    st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
)
def test_the_decision_does_not_depend_on_the_scale(classes, seed, exponent, dtype):
    """Logits of any size keep their class, although their probabilities are rounded to one number."""
    rng = torch.Generator().manual_seed(seed)
    order = torch.stack([torch.randperm(classes, generator=rng) for _ in range(4)])
    scale = 10.0**exponent if dtype == torch.float32 else 2.0 ** (exponent // 6)
    confidence, prediction = losses.decision((order * scale).to(dtype))
    assert torch.equal(prediction, order.argmax(1))
    assert (confidence >= 1 / classes - 1e-2).all()


def test_equal_logits_are_decided_as_argmax_decides():
    assert losses.decision(torch.tensor([[1.0, 3.0, 3.0]]))[1].item() == 1


@given(
    classes=st.sampled_from([1, 2, 5, 21]),
    seed=st.integers(0, 10**6),
    levels=st.sampled_from([1, 2, 4, 1000]),
)
def test_classes_of_maps_are_those_of_argmax_ties_included(classes, seed, levels):
    gen = torch.Generator().manual_seed(seed)
    maps = torch.randint(levels, (2, classes, 3, 4), generator=gen).float() / levels
    y = torch.randint(classes, (2, 3, 4), generator=gen)
    assert torch.equal(losses.predicted_classes(maps), maps.argmax(1))
    assert torch.equal(losses.correct(maps, y), maps.argmax(1) == y)


def test_more_classes_than_a_short_number_holds():
    logits = torch.zeros(1, 2**15 + 2)
    logits[0, -1] = 1
    assert losses.predicted_classes(logits).tolist() == [2**15 + 1]
