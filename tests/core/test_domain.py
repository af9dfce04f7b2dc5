import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from brinell.core.domain import Domain

PER_CHANNEL = Domain(kind="signal", shape=(2, 3), low=(-1.0, 0.0), high=(1.0, 10.0))

finite = st.floats(-1e4, 1e4, width=32)


LEVELS = st.integers(2, 300)


@st.composite
def domains(draw, *, stored=False):
    low = draw(finite)
    high = low + draw(st.floats(0.01, 1e3))
    return Domain(
        kind="vector", shape=(5,), low=low, high=high, levels=draw(LEVELS) if stored else None
    )


def test_bounds_per_channel():
    low, high = PER_CHANNEL.bounds()
    assert low.flatten().tolist() == [-1.0, 0.0] and high.flatten().tolist() == [1.0, 10.0]
    x = torch.full((1, 2, 3), 5.0)
    clamped = PER_CHANNEL.clamp(x)
    assert clamped is x, "clamp is in place"
    assert clamped[0].tolist() == [[1.0] * 3, [5.0] * 3]
    assert PER_CHANNEL.clamp(torch.full((1, 2, 3), -5.0))[0].tolist() == [[-1.0] * 3, [0.0] * 3]


def test_excess_by_hand():
    domain = Domain(kind="vector", shape=(2,))
    assert domain.excess(torch.tensor([[0.2, 1.25]])) == 0.25
    assert domain.excess(torch.tensor([[-0.5, 1.25]])) == 0.5
    assert domain.excess(torch.tensor([[0.0, 1.0]])) == 0
    assert domain.excess(torch.tensor([[0.5, 0.75]])) < 0
    assert PER_CHANNEL.excess(torch.tensor([[[1.5, 0, 0], [10.25, 5, 5]]])) == 0.5


@pytest.mark.parametrize("domain", [Domain(kind="vector", shape=(2,)), PER_CHANNEL])
def test_nan_is_no_value_inside(domain):
    x = torch.zeros(1, *domain.shape)
    x.flatten()[-1] = torch.nan
    assert domain.excess(x).isnan()


@given(domains(), st.lists(st.floats(-1e5, 1e5, width=32), min_size=5, max_size=5))
def test_what_is_clamped_is_inside(domain, values):
    """Also where the bounds are no float32 numbers: 5000.3 is 5000.2998 there, and 0.1 a little
    more than 0.1.
    """
    x = domain.clamp(torch.tensor([values]))
    assert domain.excess(x) <= 0


@given(domains(stored=True), st.lists(st.floats(0, 1), min_size=5, max_size=5))
def test_rounding(domain, shares):
    low, high = (float(bound) for bound in domain.bounds())
    x = torch.tensor([shares]) * (high - low) + low
    x = domain.clamp(x)
    rounded = domain.round(x)
    slack = 1e-6 * max(abs(low), abs(high), high - low)
    assert domain.excess(rounded) <= slack
    torch.testing.assert_close(domain.round(rounded), rounded, atol=2 * slack, rtol=0)
    step = (high - low) / (domain.levels - 1)
    assert (rounded - x).abs().max() <= step / 2 + 2 * slack
    index = (rounded - low) / step
    assert (index - index.round()).abs().max() <= 1e-3 + 4 * slack / step


def test_rounding_per_channel():
    domain = Domain(kind="signal", shape=(2, 1), low=(0.0, -10.0), high=(1.0, 10.0), levels=5)
    assert domain.round(torch.tensor([[[0.3], [-3.0]]])).flatten().tolist() == [0.25, -5.0]


def test_refuses(subtests):
    for settings, message in [
        ({"kind": "hologram", "shape": (1,)}, "kind is 'hologram'"),
        ({"kind": "vector", "shape": ()}, "needs at least one axis"),
        ({"kind": "vector", "shape": (0,)}, "no empty one"),
        (
            {"kind": "vector", "shape": (2,), "low": 1.0, "high": 0.0},
            "the lower one must be the smaller",
        ),
        ({"kind": "vector", "shape": (2,), "low": 1.0}, "the lower one must be the smaller"),
        (
            {"kind": "vector", "shape": (2,), "high": float("nan")},
            "the lower one must be the smaller",
        ),
        ({"kind": "image", "shape": (3, 2, 2), "low": (0.0, 0.0)}, "2 bounds for 3 channels"),
        ({"kind": "vector", "shape": (2,), "levels": 1}, "levels is 1"),
    ]:
        with subtests.test(settings=settings, message=message):
            with pytest.raises(ValueError, match=message):
                Domain(**settings)
