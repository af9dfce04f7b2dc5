"""Stored inputs lie on the levels and inside the ball, and are the nearest such inputs in cases
worked by hand."""

import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from _helpers import distance
from brinell.core.domain import Domain
from brinell.core.threat import size, tolerance
from brinell.engine.quantise import quantise

BYTES = Domain(kind="image", shape=(1, 1, 4), levels=256)


def stored(values, clean, eps, norm):
    x, x0 = (torch.tensor(array).reshape(1, *BYTES.shape) / 255 for array in (values, clean))
    limit = torch.tensor([eps])
    quantised = quantise(
        x, x0, limit + tolerance(limit, distance(norm), BYTES), distance(norm), BYTES
    )
    return (quantised * 255).round().flatten().tolist()


def test_levels_by_hand():
    """0.1 is 25.5 levels.

    In L2, 3.6 2.55 1.2 0.58 become 4 3 1 1, of length 5.196; 4 2 1 1 is 4.690, which suffices for
    4.7.
    """
    hundreds, l2 = [100.0] * 4, [103.6, 102.55, 101.2, 100.58]
    for values, clean, eps, norm, expected in (
        ([10.4, 9.6, 12.0, 7.0], [10.0] * 4, 3 / 255, "linf", [10, 10, 12, 7]),
        ([125.5, 74.5, 110.6, 100.0], hundreds, 0.1, "linf", [125, 75, 111, 100]),
        ([100.9, 99.1, 100.2, 100.0], hundreds, 0.95 / 255, "linf", [100] * 4),
        (l2, hundreds, 4.7 / 255, "l2", [104, 102, 101, 101]),
        (l2, hundreds, 4.62 / 255, "l2", [104, 102, 101, 100]),
        ([101.9, 100.6, 100.8, 100.0], hundreds, 3.4 / 255, "l1", [102, 100, 101, 100]),
    ):
        assert stored(values, clean, eps, norm) == expected


@example("linf", (0.0, 1.0, 256), 0.21176231177639562, 0)
@settings(max_examples=60)
@given(
    st.sampled_from(["linf", "l2", "l1", "l0"]),
    st.sampled_from([(0.0, 1.0, 256), (0.0, 1.0, 17), (0.0, 255.0, 256), (-1.0, 1.0, 9)]),
    st.floats(0.01, 0.4),
    st.integers(0, 1000),
)
def test_whatever_was_inside_stays_inside_on_levels(norm, form, share, seed):
    low, high, levels = form
    domain = Domain(kind="image", shape=(3, 4, 4), low=low, high=high, levels=levels)
    rng = torch.Generator().manual_seed(seed)
    x0 = domain.round(low + (high - low) * torch.rand(5, 3, 4, 4, generator=rng))
    of = distance(norm)
    scale = {"linf": 1.0, "l2": math.sqrt(48), "l1": 48.0, "l0": 48.0 / (high - low)}[norm]
    eps = torch.full((5,), share * (high - low) * scale)
    eps = eps.floor() if norm == "l0" else eps
    x = domain.clamp(of.project((high - low) * torch.randn(5, 3, 4, 4, generator=rng), eps) + x0)
    limit = eps + tolerance(eps, of, domain)
    quantised = quantise(x, x0, limit, of, domain)
    assert bool((size(of, quantised, x0) <= limit).all())
    level = (high - low) / (levels - 1)
    index = (quantised - low) / level
    assert (
        float((index - index.round()).abs().max()) < 1e-3
        and float((quantised - x).abs().max()) <= level * 1.001
    )
    rounded = domain.round(x)
    fits = size(of, rounded, x0) <= limit
    assert torch.equal(quantised[fits], rounded[fits])


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_no_value_is_given_up_in_vain(norm):
    """One value less on the level before, and the input would be outside."""
    rng = torch.Generator().manual_seed(1)
    domain, of = Domain(kind="image", shape=(1, 6, 6), levels=256), distance(norm)
    x0 = domain.round(0.3 + 0.4 * torch.rand(8, 1, 6, 6, generator=rng))
    eps = torch.full((8,), 0.1 if norm == "l2" else 0.5)
    x = of.project(0.03 * torch.randn(8, 1, 6, 6, generator=rng), eps) + x0
    limit = eps + tolerance(eps, of, domain)
    rounded, quantised = domain.round(x), quantise(x, x0, limit, of, domain)
    given_up = (rounded != quantised).flatten(1)
    assert given_up.any(), "none was outside"
    for row in range(8):
        indices = [index for index in given_up[row].nonzero()[:, 0].tolist()]
        if indices:
            dearest = max(
                indices, key=lambda index: float((quantised - x).flatten(1)[row, index].abs())
            )
            restored = quantised[row : row + 1].clone()
            restored.view(-1)[dearest] = rounded[row].view(-1)[dearest]
            assert float(size(of, restored, x0[row : row + 1])) > float(limit[row])
