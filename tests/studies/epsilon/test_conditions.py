"""Limits computed by hand, the conditions that a common eps may break, and what counts as
unnoticed."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from brinell.core import norms
from brinell.core.domain import Domain
from brinell.core.streams import Streams
from brinell.store import rows
from brinell.studies.epsilon import result as c
from brinell.studies.epsilon.result import Distances, limits_of
from brinell.studies.epsilon.run import largest_unnoticed, psnr, random_change, ssim

OTHER_CLASS, SAME_CLASS = np.array([1.0, 2.0, 4.0, 0.0]), np.array([0.3, 3.0, np.inf, 1.0])
IMAGE = Domain(kind="image", shape=(3, 16, 16), levels=256)


def test_limits_by_hand():
    table = {
        "norm": "l2",
        "sample_id": np.arange(4),
        "label": 0,
        "unnoticed": np.array([5.0, 0.4, 0.4, 0.4]),
    }
    limits = limits_of(rows.build(Distances, 4, same=SAME_CLASS, other=OTHER_CLASS, **table), "l2")
    assert limits["label"].tolist() == [0.5, 1, 2, 0]
    assert 0.2999 < limits["interpolation"][0] < 0.3 and np.isinf(limits["interpolation"][2])
    assert c.sample_budgets(limits).tolist() == [limits["interpolation"][0], 0.4, 0.4, 0]
    whole = limits_of(
        rows.build(Distances, 4, same=SAME_CLASS, other=OTHER_CLASS, **table | {"norm": "l0"}), "l0"
    )
    assert whole["label"].tolist() == [0, 1, 2, 0] and c.sample_budgets(whole).tolist() == [0] * 4


def test_a_common_eps_may_break_only_on_the_allowed_share():
    limits = {"label": np.arange(1.0, 101.0), "perception": np.full(100, 4.0)}
    for allow, expected in ((0.0, 1.0), (0.02, 3.0), (0.5, 51.0)):
        assert c.common_budgets(limits, allow) == {"label": expected, "perception": 4.0}
    assert c.common_budgets({"label": np.array([np.inf])}, 0.01) == {"label": np.inf}


def test_budgets_by_sample_class_and_set():
    limits, labels = {"label": np.array([1.5, 2.5, 7.0, 8.0])}, np.array([0, 0, 1, 1])
    assert c.budgets_by(limits, labels, "sample", 0.01).tolist() == [1.5, 2.5, 7, 8]
    assert c.budgets_by(limits, labels, "class", 0.01).tolist() == [1.5, 1.5, 7, 7]
    assert c.budgets_by(limits, labels, "set", 0.01).tolist() == [1.5] * 4


@given(st.floats(1e-9, 1e9))
def test_rounding_goes_down_by_little(eps):
    assert eps * 0.989 <= c.round_down(eps) <= eps


def grey(n=4, value=0.5):
    return torch.full((n, 3, 16, 16), value)


def test_similarity_of_pictures_with_known_values():
    x, y, c1 = grey(1, 0.4), grey(1, 0.6), 0.01**2
    assert float(ssim(x, y)) == pytest.approx((2 * 0.24 + c1) / (0.16 + 0.36 + c1), rel=1e-4)
    noise = Streams.of(0, torch.arange(3)).uniform(3, 16, 16)
    assert (
        torch.allclose(ssim(noise, noise), torch.ones(3))
        and float(ssim(noise, 1 - noise).max()) < 0
    )
    assert float(psnr(grey(1, 0.5), y)) == pytest.approx(20, abs=1e-3) and float(
        psnr(x, x)
    ) == float("inf")


def test_ssim_ignores_plain_parts_of_the_picture():
    x = torch.zeros(1, 1, 40, 40)
    x[:, :, 5:15, 5:15] = (torch.arange(100).reshape(10, 10) % 2) * 0.8
    plain, faint = x.clone(), x.clone()
    plain[:, :, 28:, 28:] += 0.02 * (torch.arange(144).reshape(12, 12) % 2)
    faint[:, :, 5:15, 5:15] *= 0.3
    assert float(ssim(x, plain)) == pytest.approx(1, abs=1e-6), "the changed windows are plain"
    assert float(ssim(x, faint)) < 0.8
    assert float(ssim(torch.zeros_like(x), plain)) < 1, "a picture without texture counts in full"


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_the_largest_unnoticed_change_keeps_both_limits_and_a_larger_one_does_not(norm):
    rng = Streams.of(2, torch.arange(4))
    x = rng.uniform(3, 16, 16) * 0.6 + 0.2
    delta = random_change(norm, x, rng.fold("change"))
    assert torch.allclose(getattr(norms, norm)(delta), torch.ones(4), rtol=1e-4)
    eps = largest_unnoticed(norm, x, delta, IMAGE, least_ssim=0.9, least_psnr=30.0)
    fine, larger = (
        IMAGE.clamp(x + norms.per_sample(eps * factor, x) * delta) for factor in (1.0, 1.01)
    )
    assert (ssim(x, fine) >= 0.9).all() and (psnr(x, fine) >= 29.999).all()
    assert ((ssim(x, larger) < 0.9) | (psnr(x, larger) < 30)).all()
