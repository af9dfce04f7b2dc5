"""The published corruptions: values worked by hand, the contract of distortions, and pictures of
every usual form.
"""

import math

import numpy as np
import pytest
import torch

from brinell import plugins
from brinell.core.streams import Streams
from brinell.distortions._published import Published, dragged, smoothed, zoomed
from brinell.distortions.published_defocus_blur import disk
from brinell.distortions.published_fog import plasma
from brinell.distortions.published_spatter import equalised
from brinell.studies.corruption.result import FIFTEEN

NAMES = [
    name
    for name in plugins.names("distortion")
    if issubclass(plugins.load("distortion", name), Published)
]
KINDS = {name.removeprefix("published-"): plugins.load("distortion", name) for name in NAMES}


def distort_with(name, x, severity=3, seed=0):
    rng = Streams.of(seed, torch.arange(len(x))).fold(name)
    level = torch.full((len(x),), severity)
    return KINDS[name]()(x, level, rng, torch.zeros(len(x), dtype=torch.int64))


@pytest.fixture(scope="module")
def pictures():
    return torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def test_the_list_is_the_published_one():
    assert (
        len(KINDS) == 19
        and len(FIFTEEN) == 15
        and {f"published-{name}" for name in KINDS} > set(FIFTEEN)
    )


def test_each_keeps_the_contract(pictures, subtests):
    for name in KINDS:
        with subtests.test(name=name):
            before = pictures.clone()
            batched = distort_with(name, pictures)
            assert (
                batched.shape == pictures.shape
                and batched.min() >= 0
                and batched.max() <= 1
                and torch.equal(pictures, before)
            )
            assert torch.equal(batched, distort_with(name, pictures)) and not torch.equal(
                batched, pictures
            )
            if KINDS[name].versions is None:
                assert not torch.equal(batched, distort_with(name, pictures, seed=1))
            # Each picture for itself: its stream, and not its place, decides.
            level, none = torch.tensor([3]), torch.zeros(1, dtype=torch.int64)
            for row in (1, 3):
                separate = KINDS[name]()(
                    pictures[row : row + 1],
                    level,
                    Streams.of(0, torch.tensor([row])).fold(name),
                    none,
                )
                assert torch.allclose(separate, batched[row : row + 1], atol=1e-5)
            mixed = KINDS[name]()(
                pictures,
                torch.tensor([1, 3, 5, 3]),
                Streams.of(0, torch.arange(4)).fold(name),
                torch.zeros(4, dtype=torch.int64),
            )
            assert torch.allclose(mixed[1], batched[1], atol=1e-5) and torch.allclose(
                mixed[3], batched[3], atol=1e-5
            )


def test_pictures_of_other_forms(subtests):
    for name in KINDS:
        for shape in [(1, 8, 8), (3, 20, 33), (1, 28, 28)]:
            with subtests.test(name=name, shape=shape):
                for x in (
                    torch.rand(2, *shape, generator=torch.Generator().manual_seed(1)),
                    torch.zeros(2, *shape),
                    torch.ones(2, *shape),
                ):
                    for severity in (1, 5):
                        out = distort_with(name, x, severity)
                        assert out.shape == x.shape and bool(torch.isfinite(out).all())


def test_light_by_hand():
    x = torch.tensor([0.2, 0.4, 0.8]).reshape(1, 3, 1, 1).expand(1, 3, 32, 32).contiguous()
    # Value 0.8 raised by 0.15 (severity 3 at 32 pixels), the other channels in proportion.
    assert torch.allclose(
        distort_with("brightness", x)[0, :, 0, 0],
        torch.tensor([0.2, 0.4, 0.8]) * 0.95 / 0.8,
        atol=1e-5,
    )
    # Saturation 0.75 times 0.3: value 0.8, least 0.8 (1 - 0.225).
    assert torch.allclose(
        distort_with("saturate", x, 1)[0, :, 0, 0], torch.tensor([0.62, 0.68, 0.8]), atol=1e-5
    )
    # Grey counts as red: 2.5 times 0 plus 0.2.
    grey = torch.full((1, 3, 32, 32), 0.5)
    assert torch.allclose(
        distort_with("saturate", grey, 5)[0, :, 0, 0], torch.tensor([0.5, 0.4, 0.4]), atol=1e-5
    )
    half = torch.cat([torch.zeros(1, 3, 16, 32), torch.ones(1, 3, 16, 32)], 2)
    assert distort_with("contrast", half, 3)[0, 0, 0, 0] == pytest.approx(0.5 - 0.4 * 0.5)


def test_noise_has_its_moments():
    x = torch.full((40, 3, 32, 32), 0.5)
    assert (distort_with("gaussian-noise", x, 3) - x).std() == pytest.approx(0.08, rel=0.02)
    assert (distort_with("speckle-noise", x, 3) - x).std() == pytest.approx(0.5 * 0.12, rel=0.02)
    shot = distort_with("shot-noise", x, 5)
    assert shot.mean() == pytest.approx(0.5, abs=0.002) and shot.std() == pytest.approx(
        math.sqrt(0.5 / 50), rel=0.02
    )
    impulse = distort_with("impulse-noise", x, 5)
    assert (impulse != x).float().mean() == pytest.approx(0.07, rel=0.05)
    assert (impulse == 1).float().mean() == pytest.approx(0.035, rel=0.07)


def test_blurs_spread_a_point():
    spot = torch.zeros(1, 1, 31, 31)
    spot[0, 0, 15, 15] = 1
    for kind in (distort_with("gaussian-blur", spot, 5), distort_with("defocus-blur", spot, 5)):
        assert kind.sum() == pytest.approx(1, abs=1e-4) and torch.allclose(
            kind, kind.flip(2), atol=1e-6
        )
    assert smoothed(spot, 1.0)[0, 0, 15, 16] / smoothed(spot, 1.0)[0, 0, 15, 15] == pytest.approx(
        math.exp(-0.5), abs=1e-4
    )
    assert (
        int((disk(3, 0.1) > 1e-6).sum()) == 29
        and disk(10, 0.5).shape == (21, 21)
        and disk(3, 0.1).sum() == pytest.approx(1)
    )
    # Dragged to the right by weights that fall like a Gaussian: from a point, a line to its left,
    # and nothing elsewhere.
    line = dragged(spot, 6, 2.0, torch.zeros(1))[0, 0]
    assert (
        line[15, 15] > line[15, 14] > line[15, 13] > 0 and line[14].sum() == 0 and line[15, 16] == 0
    )
    flat = torch.full((1, 1, 31, 31), 0.3)
    assert torch.allclose(dragged(flat, 6, 2.0, torch.ones(1)), flat, atol=1e-6)
    assert (
        torch.allclose(zoomed(flat, 1.2), flat, atol=1e-6) and zoomed(spot, 1.5).shape == spot.shape
    )


def test_fog_is_a_fractal_from_0_to_1():
    veil = plasma(Streams.of(0, torch.arange(3)), 32, 2.0)
    assert (
        veil.shape == (3, 32, 32)
        and veil.amin((1, 2)).tolist() == [0] * 3
        and veil.amax((1, 2)).tolist() == [1] * 3
    )
    rough, smooth = (plasma(Streams.of(0, torch.arange(20)), 32, decay) for decay in (1.4, 3.0))
    assert rough.diff(dim=2).abs().mean() > 1.5 * smooth.diff(dim=2).abs().mean()


def test_equalised_histogram():
    levels = torch.tensor([0, 0, 0, 5, 5, 9, 9, 9]).reshape(1, 1, 2, 4)
    # (sum up to the level - 3) / (8 - 3) * 255
    assert equalised(levels).flatten().tolist() == [0, 0, 0, 102, 102, 255, 255, 255]


def test_parameters_go_by_the_side():
    small, large = torch.full((1, 3, 32, 32), 0.5), torch.full((1, 3, 224, 224), 0.5)
    deviations = [float((distort_with("gaussian-noise", x, 1) - x).std()) for x in (small, large)]
    assert np.allclose(deviations, [0.04, 0.08], rtol=0.05)
