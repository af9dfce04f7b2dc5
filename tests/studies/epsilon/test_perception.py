"""Similarity with known values, and changes of exactly the requested size."""

import pytest
import torch

from brinell.core import norms
from brinell.core.domain import Domain
from brinell.core.streams import Streams
from brinell.studies.epsilon.perception import (
    background_changed,
    find_background,
    largest_unnoticed,
    psnr,
    rescale,
    sizes,
    ssim,
    typical_change,
)

IMAGE = Domain(kind="image", shape=(3, 16, 16), levels=256)


def grey(n=4, value=0.5):
    return torch.full((n, 3, 16, 16), value)


def test_flat_pictures_have_the_ssim_of_their_means():
    x, y = grey(1, 0.4), grey(1, 0.6)
    c1 = 0.01**2
    assert float(ssim(x, y)) == pytest.approx((2 * 0.24 + c1) / (0.16 + 0.36 + c1), rel=1e-4)
    noise = Streams.of(0, torch.arange(3)).uniform(3, 16, 16)
    assert torch.allclose(ssim(noise, noise), torch.ones(3))
    assert float(ssim(noise, 1 - noise).max()) < 0


def test_psnr_of_an_even_change():
    assert float(psnr(grey(1, 0.5), grey(1, 0.6))) == pytest.approx(20, abs=1e-3)
    assert float(psnr(grey(1), grey(1))) == float("inf")


@pytest.mark.parametrize("norm", ["linf", "l2", "l1", "l0"])
def test_a_typical_change_uses_the_full_budget(norm):
    x, rng = grey(), Streams.of(1, torch.arange(4))
    eps = torch.tensor([3.0, 7.0, 1.0, 2.0]) * (0.05 if norm in ("linf", "l2") else 1)
    changed = typical_change(norm, x, eps, IMAGE, rng)
    assert torch.allclose(getattr(norms, norm)(changed - x), eps, rtol=1e-4)


def test_the_largest_unnoticed_change_keeps_both_limits_and_a_larger_one_does_not():
    x, rng = Streams.of(2, torch.arange(4)).uniform(3, 16, 16) * 0.6 + 0.2, Streams.of(0, torch.arange(4))
    eps = largest_unnoticed(
        "linf", x, IMAGE, lambda e: typical_change("linf", x, e, IMAGE, rng), least_ssim=0.9, least_psnr=30.0, steps=16
    )
    fine, larger = (typical_change("linf", x, eps * factor, IMAGE, rng) for factor in (1.0, 1.01))
    assert (ssim(x, fine) >= 0.9).all() and (psnr(x, fine) >= 29.999).all()
    assert ((ssim(x, larger) < 0.9) | (psnr(x, larger) < 30)).all()


def test_ssim_ignores_plain_parts_of_the_picture():
    x = torch.zeros(1, 1, 40, 40)
    x[:, :, 5:15, 5:15] = (torch.arange(100).reshape(10, 10) % 2) * 0.8
    plain, faint = x.clone(), x.clone()
    plain[:, :, 28:, 28:] += 0.02 * (torch.arange(144).reshape(12, 12) % 2)
    faint[:, :, 5:15, 5:15] *= 0.3
    assert float(ssim(x, plain)) == pytest.approx(1, abs=1e-6), "the changed windows are plain"
    assert float(ssim(x, faint)) < 0.8
    assert float(ssim(torch.zeros_like(x), plain)) < 1, "a picture without texture counts in full"


@pytest.mark.parametrize(("norm", "eps"), [("linf", 0.07), ("l2", 1.5), ("l1", 4.0), ("l0", 7.0)])
def test_a_stored_perturbation_is_scaled_to_the_requested_size(norm, eps):
    delta = Streams.of(3, torch.arange(2)).normal(3, 16, 16) * 0.1
    changed = rescale(norm, delta, torch.tensor([eps, 2 * eps]))
    assert torch.allclose(sizes(norm, changed), torch.tensor([eps, 2 * eps]), rtol=1e-4)
    if norm == "l0":
        mask = changed[0] != 0
        assert delta[0][mask].abs().min() >= delta[0][~mask].abs().max(), "the largest values remain"
    else:
        assert float(torch.nn.functional.cosine_similarity(changed.flatten(1), delta.flatten(1)).min()) == pytest.approx(1)


def test_a_background_reveals_the_smallest_change():
    x = torch.zeros(2, 1, 4, 4)
    x[:, :, 1:3, 1:3] = 0.7
    assert find_background(x) == 0.0
    assert find_background(torch.rand(2, 1, 4, 4, generator=torch.Generator().manual_seed(0)) + 0.01) is None
    changed = x.clone()
    changed[0, 0, 0] += 1 / 255
    changed[1, 0, 1, 1] += 0.2  # not background
    assert background_changed(x, changed, 0.0, 1 / 255).tolist() == pytest.approx([4 / 12, 0])
