"""What each distortion does, by hand; and what a severity means, on photographs."""

import io
import math

import numpy as np
import pytest
import torch
from PIL import Image

from _refusals import refused
from brinell import plugins
from brinell.core.domain import Domain
from brinell.core.errors import ContractError, RequestError
from brinell.core.patches import PatchGrid
from brinell.core.streams import Streams
from brinell.core.user_files import import_file
from brinell.distortions._shared import Scale
from brinell.rlab.distort import CLEAN, DistortedInputs, distorted, variants
from brinell.testing import check_distortion


def distort_with(name, x, parameter, seed=0, **settings):
    """The distortion with its parameter given directly."""
    distortion = plugins.build("distortion", name, settings)
    return distortion.distort(
        x, torch.full((len(x),), float(parameter)), Streams.of(seed, torch.arange(len(x)))
    )


def called(name, x, severity, draw=0):
    n = len(x)
    arguments = (torch.full((n,), severity), Streams.of(0, torch.arange(n)), torch.full((n,), draw))
    return plugins.build("distortion", name, {})(x, *arguments)


def impulse(*shape, position):
    x = torch.zeros(1, *shape)
    x[(0, ..., *position)] = 1
    return x


def test_gaussian_noise():
    noise = distort_with("gaussian-noise", torch.full((4, 3, 40, 40), 0.5), 0.05) - 0.5
    assert float(noise.std()) == pytest.approx(0.05, rel=0.03) and abs(float(noise.mean())) < 0.002
    assert distort_with("gaussian-noise", torch.ones(1, 1000), 0.1).max() == 1


def test_gaussian_blur_of_an_impulse_is_the_kernel():
    y = distort_with("gaussian-blur", impulse(1, 41, 41, position=(20, 20)), 2.0)[0, 0]
    place = torch.arange(41.0) - 20
    assert float(y.sum()) == pytest.approx(1, abs=1e-5)
    assert float((y.sum(0) * place**2).sum()) == pytest.approx(4, rel=0.02) and torch.allclose(
        y, y.T
    )
    line = distort_with("gaussian-blur", impulse(1, 41, position=(20,)), 2.0)[0, 0]
    assert torch.allclose(line, y.sum(0), atol=1e-6), "a signal is blurred over time"
    assert torch.allclose(
        distort_with("gaussian-blur", torch.full((1, 1, 5, 3), 0.7), 3.0), torch.tensor(0.7)
    )


def test_motion_blur_of_an_impulse_is_a_segment(subtests):
    for length in [1.0, 4.0, 9.0]:
        with subtests.test(length=length):
            directions = []
            for seed in range(6):
                y = distort_with(
                    "motion-blur", impulse(1, 31, 31, position=(15, 15)), length, seed
                )[0, 0]
                assert float(y.sum()) == pytest.approx(1, abs=1e-5)
                axis = torch.arange(31.0) - 15
                spread = torch.stack(
                    [
                        torch.stack([(y * a * b).sum() for a in (axis[:, None], axis)])
                        for b in (axis[:, None], axis)
                    ]
                )
                across, minor = torch.linalg.eigvalsh(spread).tolist()
                # A segment has variance length**2 / 12; spreading points over pixels adds up to 1/4
                # in either direction.
                assert length**2 / 12 - 0.05 < minor < length**2 / 12 + 0.3 and across < 0.3
                directions.append(
                    math.atan2(float(spread[0, 1]), float(spread[0, 0] - spread[1, 1]))
                )
            assert max(directions) - min(directions) > 1
            assert torch.allclose(
                distort_with("motion-blur", torch.full((1, 1, 5, 3), 0.7), 9.0), torch.tensor(0.7)
            )


def test_brightness_and_contrast():
    x = torch.tensor([[[[0.2, 0.4], [0.6, 0.8]]]])
    torch.testing.assert_close(
        distort_with("brightness", x, 0.3), torch.tensor([[[[0.5, 0.7], [0.9, 1.0]]]])
    )
    torch.testing.assert_close(
        distort_with("brightness", x, -0.3), torch.tensor([[[[0.0, 0.1], [0.3, 0.5]]]])
    )
    assert torch.equal(called("illuminate", x, 3, draw=1), called("brightness", x, 3, draw=1))
    assert (called("brightness", x, 1, draw=0) > x).all() and (
        called("brightness", x, 1, draw=1) < x
    ).all()
    torch.testing.assert_close(
        distort_with("contrast", x, 0.5), torch.tensor([[[[0.35, 0.45], [0.55, 0.65]]]])
    )


def test_dead_pixels_are_dead_in_all_channels_and_frames():
    x = torch.full((2, 3, 4, 30, 30), 0.5)
    weak, strong = (distort_with("dead-pixel", x, share) == 0 for share in (0.1, 0.3))
    assert float(weak.float().mean()) == pytest.approx(0.1, abs=0.03)
    assert torch.equal(weak, weak[:, :1, :1].expand_as(weak)) and not torch.equal(weak[0], weak[1])
    assert (strong | ~weak).all() and strong.sum() > 2 * weak.sum(), (
        "more severe: the same pixels and others"
    )
    assert torch.equal(distort_with("dead-pixel", x, 0.1, value=0.75) == 0.75, weak)


def test_salt_and_pepper():
    y = distort_with("salt-and-pepper", torch.full((2, 3, 60, 60), 0.5), 0.2)
    assert float((y == 0).float().mean()) == pytest.approx(0.1, abs=0.01)
    assert float((y == 1).float().mean()) == pytest.approx(0.1, abs=0.01)
    assert not torch.equal(y[:, 0] == 0, y[:, 1] == 0), "each value for itself"


def test_jpeg_is_what_pillow_makes(subtests):
    for channels in [1, 2, 3]:
        with subtests.test(channels=channels):
            x = Streams.of(0, torch.arange(2)).uniform(channels, 11, 17)
            y = distort_with("jpeg", x, 30)
            for before, after in zip(x, y, strict=True):
                for part, restored in (
                    [(before, after)]
                    if channels == 3
                    else zip(before[:, None], after[:, None], strict=True)
                ):
                    pixels = (part.permute(1, 2, 0).numpy() * 255).round().astype(np.uint8)
                    file = io.BytesIO()
                    Image.fromarray(pixels if len(part) == 3 else pixels[..., 0]).save(
                        file, "JPEG", quality=30
                    )
                    decoded = (
                        np.asarray(Image.open(file), dtype=np.float32).reshape(pixels.shape) / 255
                    )
                    np.testing.assert_allclose(
                        restored.permute(1, 2, 0).numpy(), decoded, atol=1e-6
                    )


def test_fog_moves_everything_towards_its_light():
    x = Streams.of(0, torch.arange(2)).uniform(3, 24, 16)
    assert torch.equal(distort_with("fog", x, 0.0), x)
    y = distort_with("fog", x, 0.6)
    share = (y - x) / (0.9 - x)
    assert float(share.min()) == pytest.approx(0.3, abs=0.01) and float(
        share.max()
    ) == pytest.approx(0.6, abs=0.01)
    torch.testing.assert_close(
        share[:, 0], share[:, 1], msg="the same veil over all channels", atol=1e-2, rtol=0
    )


def test_pixelate_takes_means_of_blocks():
    x = torch.arange(16.0).reshape(1, 1, 4, 4) / 16
    blocks = (
        torch.tensor([[2.5, 4.5], [10.5, 12.5]]).repeat_interleave(2, 0).repeat_interleave(2, 1)
        / 16
    )
    torch.testing.assert_close(distort_with("pixelate", x, 2), blocks[None, None])
    torch.testing.assert_close(
        distort_with("pixelate", x[..., 0, :], 2)[0, 0], torch.tensor([0.5, 0.5, 2.5, 2.5]) / 16
    )
    assert distort_with("pixelate", x, 99).unique().tolist() == [7.5 / 16]


def test_occlusion_hides_about_the_area_that_it_says():
    x = torch.full((40, 3, 32, 32), 0.123)
    hidden = distort_with("occlusion", x, 0.2) != x
    assert 0.1 < float(hidden.float().mean()) < 0.2, "boxes overlap and stick out"
    assert torch.equal(hidden, hidden[:, :1].expand_as(hidden))
    covered = distort_with("occlusion", x, 0.4) != x
    assert (covered | ~hidden).all()
    signal = distort_with("occlusion", torch.full((40, 2, 200), 0.123), 0.2) != 0.123
    assert 0.1 < float(signal.float().mean()) < 0.2 and torch.equal(signal[:, 0], signal[:, 1])


def test_signed_patch_offers_every_combination_of_signs():
    distortion = plugins.build("distortion", "signed-patch", {})
    assert [
        distortion.draws(shape) for shape in ((7,), (1, 9), (3, 4, 4), (12, 50), (3, 2, 4, 4))
    ] == [2, 2, 8, 16, 8]
    x = torch.full((8, 3, 2, 2), 0.5)
    y = distortion(x, torch.full((8,), 3), Streams.of(0, torch.arange(8)), torch.arange(8))
    delta = float(distortion.scale.small[2])
    signs = ((y - x) / delta).round()
    assert signs[:, :, 0, 0].tolist() == [
        [1 - 2 * (draw >> channel & 1) for channel in range(3)] for draw in range(8)
    ]
    torch.testing.assert_close(y - x, delta * signs)
    large = plugins.build("distortion", "signed-patch", {"factor": "2"})
    torch.testing.assert_close(
        large(x, torch.full((8,), 3), Streams.of(0, torch.arange(8)), torch.arange(8)) - x,
        2 * (y - x),
    )


def test_a_video_is_its_frames(subtests):
    """The same draw distorts every frame as it would a picture of its own."""
    for name in [
        "gaussian-blur",
        "motion-blur",
        "jpeg",
        "pixelate",
        "fog",
        "dead-pixel",
        "occlusion",
    ]:
        with subtests.test(name=name):
            x = Streams.of(0, torch.arange(2)).uniform(3, 4, 12, 10)
            frames = torch.stack([called(name, x[:, :, t], 3) for t in range(4)], 2)
            torch.testing.assert_close(called(name, x, 3), frames, atol=1e-5, rtol=0)


def film(n=2, frames=16, height=9, width=13):
    """Videos no two of whose frames are alike."""
    return 0.2 + 0.7 * Streams.of(5, torch.arange(n)).uniform(3, frames, height, width)


def frames_of(y, x):
    """(n, T): the number of the frame of `x` that each frame of `y` shows, -1 for none."""
    equal_cells = (y[:, :, :, None] == x[:, :, None]).flatten(4).all(4).all(1)
    return torch.where(equal_cells.any(2), equal_cells.float().argmax(2), -1)


def test_dropped_frames_are_black_or_the_last_that_came():
    x = film(40)
    weak, strong = (
        (distort_with("frame-drop", x, share) == 0).flatten(3).all(3).all(1) for share in (0.2, 0.5)
    )
    assert float(weak.float().mean()) == pytest.approx(0.2, abs=0.05) and not torch.equal(
        weak[0], weak[1]
    )
    assert (strong | ~weak).all() and strong.sum() > 2 * weak.sum(), (
        "more severe: the same frames and others"
    )
    black = distort_with("frame-drop", x, 0.2)
    assert torch.equal(frames_of(black, x), torch.where(weak, -1, torch.arange(16))), (
        "the others are as they were"
    )
    source_frames = frames_of(distort_with("frame-drop", x, 0.2, shows="last"), x)
    for row, weak_row in zip(source_frames.tolist(), weak.tolist(), strict=True):
        last = 0
        for number, (frame, is_lost) in enumerate(zip(row, weak_row, strict=True)):
            last = last if is_lost and number else number
            assert frame == last


def test_a_freeze_repeats_one_frame(subtests):
    for share, freeze_length in [(0.2, 3.0), (0.5, 7.5), (1.0, 15.0), (0.01, 1.0)]:
        with subtests.test(share=share, freeze_length=freeze_length):
            x = film(60)
            source_frames = frames_of(distort_with("frame-repeat", x, share), x)
            repeated = source_frames != torch.arange(16)
            assert float(repeated.sum(1).float().mean()) == pytest.approx(freeze_length, abs=0.3)
            for row, repeated_row in zip(source_frames.tolist(), repeated.tolist(), strict=True):
                frozen = {row[number] for number in range(16) if repeated_row[number]}
                (first,) = frozen
                assert row == [
                    *range(first + 1),
                    *[first] * sum(repeated_row),
                    *range(first + 1 + sum(repeated_row), 16),
                ]
            assert share == 1 or len({tuple(row) for row in source_frames.tolist()}) > 5, (
                "at another moment in each video"
            )
            assert torch.equal(distort_with("frame-repeat", x[:, :, :1], 1.0), x[:, :, :1]), (
                "a picture cannot freeze"
            )


def test_lost_blocks_stand_still_without_detail_until_the_next_key_frame():
    x = film(30, frames=20, height=16, width=24)
    y = distort_with("compression-blocks", x, 0.25)
    cells = x.reshape(30, 3, 20, 8, 2, 8, 3)
    changed = (y != x).reshape(cells.shape).any(6).any(4).any(1)  # (n, T, 8, 8)
    assert float(changed.float().mean()) == pytest.approx(0.25, abs=0.02)
    means = cells.mean((4, 6), keepdim=True).expand_as(cells)
    for start in (0, 8, 16):
        group = slice(start, start + 8)
        cells_changed = changed[:, group]
        assert torch.equal(cells_changed, cells_changed[:, :1].expand_as(cells_changed)), (
            "from one key frame to the next"
        )
        frozen_mean = (
            means[:, :, start : start + 1]
            .expand_as(cells[:, :, group])
            .reshape(x[:, :, group].shape)
        )
        away = (
            cells_changed[:, None, :, :, None, :, None]
            .expand_as(cells[:, :, group])
            .reshape(frozen_mean.shape)
        )
        torch.testing.assert_close(y[:, :, group], torch.where(away, frozen_mean, x[:, :, group]))
    assert not torch.equal(changed[:, 0], changed[:, 8])
    assert ((distort_with("compression-blocks", x, 0.5) != x) | ~(y != x)).all()


def test_flicker_is_a_sine_over_time():
    x = torch.full((50, 3, 30, 4, 5), 0.5)
    light = distort_with("flicker", x, 0.4) - 0.5
    torch.testing.assert_close(light, light[:, :1, :, :1, :1].expand_as(light))
    line = light[:, 0, :, 0, 0]
    assert 0.35 < float(line.abs().max()) <= 0.4 + 1e-6 and line.mean(1).abs().max() < 0.15
    # A sine's neighbours fix its pace: their sum is twice the cosine of the step times the value
    # between.
    pace = ((line[:, 2:] + line[:, :-2]) * line[:, 1:-1]).sum(1) / (
        2 * line[:, 1:-1].square().sum(1)
    )
    period = 2 * math.pi / torch.acos(pace.clamp(-1, 1))
    assert 1.99 < float(period.min()) < 3 and 6 < float(period.max()) < 10.01
    torch.testing.assert_close(
        line[:, 2:], 2 * pace[:, None] * line[:, 1:-1] - line[:, :-2], atol=1e-4, rtol=0
    )


@pytest.mark.parametrize("name", ["gaussian-noise", "salt-and-pepper"])
def test_noise_differs_from_frame_to_frame(name):
    y = called(name, torch.full((1, 1, 2, 12, 10), 0.5), 5)
    assert not torch.equal(y[:, :, 0], y[:, :, 1])


def test_a_scale_is_interpolated_in_the_logarithm_of_the_side():
    scale = Scale(small=(1, 2, 3, 4, 5), large=(2, 4, 6, 8, 10))
    level = torch.tensor([1, 5])
    sides = [
        (16, 16),
        (32, 32),
        (math.isqrt(32 * 224), math.isqrt(32 * 224)),
        (32, 224),
        (224, 224),
        (512, 512),
    ]
    parameters = [scale(level, torch.zeros(2, 3, *side)).tolist() for side in sides]
    assert parameters[0] == parameters[1] == [1, 5] and parameters[4] == parameters[5] == [2, 10]
    assert parameters[2] == pytest.approx([1.5, 7.5], rel=0.01) and parameters[3] == pytest.approx(
        [1.5, 7.5]
    )
    assert scale(level, torch.zeros(2, 1, 3, 224, 224)).tolist() == [2, 10] and scale(
        level, torch.zeros(2, 9)
    ).tolist() == [1, 5]


def test_other_bounds_are_moved_to_the_unit_range_and_back():
    domain = Domain(kind="signal", shape=(2, 50), low=(-5.0, 100.0), high=(5.0, 300.0))
    low, high = domain.bounds()
    unit, rng = Streams.of(1, torch.arange(3)).uniform(2, 50), Streams.of(0, torch.arange(3))
    x = low + (high - low) * unit
    x += 1e-3 * (
        (low + high) / 2 - x
    )  # so that going there and back would not find the same float again
    unit = (x - low) / (high - low)
    for name in ("salt-and-pepper", "gaussian-blur"):
        distortion = plugins.build("distortion", name, {})
        y = distorted(distortion, x, 4, rng, domain=domain)
        plain = distorted(distortion, unit, 4, rng, domain=Domain(kind="signal", shape=(2, 50)))
        torch.testing.assert_close((y - low) / (high - low), plain, atol=1e-4, rtol=0)
        assert domain.excess(y) <= 0
        if name == "salt-and-pepper":
            assert torch.equal(y == x, plain == unit) and (y == x).sum() > 200, (
                "what is left alone stays bit by bit"
            )
    with pytest.raises(RequestError, match="severity .* must be between 1 and 5"):
        distorted(distortion, x, 6, rng, domain=domain)


@pytest.mark.slow
def test_a_filter_of_ones_own(root):
    """The example file: found by its path, checked, and placed on patches like any other."""
    name = f"{root}/examples/distortions/glare.py:Glare"
    check_distortion(plugins.load("distortion", name))
    glare, domain = plugins.build("distortion", name, {}), Domain(kind="image", shape=(1, 8, 8))
    row, inputs = (
        torch.tensor([0]),
        DistortedInputs(1, domain, variants([glare], domain), torch.device("cpu")),
    )
    inputs.put(row, torch.zeros(1, 1, 8, 8), Streams.of(0, row))
    x = inputs.render(row, torch.tensor([[4, CLEAN, CLEAN, CLEAN]]), PatchGrid.over(domain, 4))[
        0, 0
    ]
    assert (
        x[0, 0] == 1 and not x[4:].any() and not x[:, 4:].any() and x[0, 3] == pytest.approx(4 / 7)
    )


def test_a_failing_filter_is_told_in_one_line():
    class Broken(type(plugins.build("distortion", "fog", {}))):
        def __call__(self, x, severity, rng, draw):
            return x[:, :, :1]

    with pytest.raises(ContractError, check=refused("rlab.distort._broken")):
        distorted(
            Broken(),
            torch.zeros(1, 1, 4, 4),
            1,
            Streams.of(0, torch.arange(1)),
            domain=Domain(kind="image", shape=(1, 4, 4)),
        )


# Signals alone


def line(value=0.5, channels=2, length=250):
    return torch.full((3, channels, length), value)


def spectrum(y):
    """Power at each Hz of one-channel signals of two seconds at 125 Hz, in steps of 0.5 Hz."""
    return torch.fft.rfft(y[:, 0] - y[:, 0].mean(1, keepdim=True)).abs().square()


def test_mains_hum_is_a_sine_of_its_frequency():
    for frequency in (50.0, 60.0):
        y = distort_with("mains-hum", line(), 0.1, frequency=frequency) - 0.5
        assert spectrum(y).argmax(1).tolist() == [2 * frequency] * 3
        assert float(y.square().mean()) == pytest.approx(0.005, rel=0.02) and torch.equal(
            y[:, 0], y[:, 1]
        )
        assert not torch.equal(y[0], y[1]), "each with a phase of its own"
    with pytest.raises(RequestError, match="between 0 and half the rate"):
        plugins.build("distortion", "mains-hum", {"frequency": 60, "rate": 100})


def test_baseline_wander_is_slow_and_differs_between_channels():
    y = distort_with("baseline-wander", line(length=12500), 0.1)
    low, high = (
        torch.fft.rfft(y - 0.5).abs().square()[..., part].sum(-1)
        for part in (slice(75), slice(75, None))
    )
    assert (high < 0.02 * low).all(), "below 0.75 Hz in 100 s"
    assert float((y - 0.5).abs().max()) == pytest.approx(0.1, rel=0.01) and not torch.equal(
        y[:, 0], y[:, 1]
    )


def test_muscle_noise_has_nothing_below_20_hz_and_one_height():
    y = distort_with("muscle-noise", line(channels=1, length=2500), 0.05) - 0.5
    power = spectrum(y)
    assert (power[:, :380].sum(1) < 0.01 * power.sum(1)).all(), "20 Hz is number 400"
    loudest = y[:, 0].unfold(1, 250, 50).std(2).amax(1)
    assert loudest.tolist() == pytest.approx([0.05] * 3, rel=0.2)
    quietest = y[:, 0].unfold(1, 250, 50).std(2).amin(1)
    assert (quietest < 0.7 * loudest).all()


def test_electrode_pop_jumps_and_decays():
    y = distort_with("electrode-pop", line(channels=1), 0.2, seed=2)[:, 0] - 0.5
    for sample in y:
        moment = int(sample.abs().argmax())
        assert (
            float(sample[moment].abs()) == pytest.approx(0.2, abs=1e-6)
            and not sample[:moment].any()
        )
        if moment < 200:
            assert float(sample[moment + 25] / sample[moment]) == pytest.approx(
                math.exp(-1), rel=1e-4
            ), "0.2 s later"
    assert {
        bool(distort_with("electrode-pop", line(), 0.2, seed=seed)[0].amax() > 0.6)
        for seed in range(8)
    } == {True, False}


def test_dropout_leaves_a_flat_stretch_at_the_baseline():
    x = torch.linspace(0, 1, 101).expand(4, 1, 101).contiguous()
    weak, strong = (distort_with("dropout", x, share) for share in (0.1, 0.3))
    assert ((weak != x).sum(2) <= 11).all() and (weak[weak != x] == 0.5).all()
    assert ((strong != x) | (weak == x)).all(), "more severe: the same stretch, and longer"
    assert called(
        "dropout", torch.rand(1, 1, 3, generator=torch.Generator().manual_seed(0)), 1
    ).shape == (1, 1, 3)


def test_gain_stretches_around_the_baseline():
    x = torch.tensor([[[0.5, 0.5, 0.5, 0.7, 0.4]]])
    torch.testing.assert_close(
        distort_with("gain", x, 2.0), torch.tensor([[[0.5, 0.5, 0.5, 0.9, 0.3]]])
    )
    torch.testing.assert_close(
        distort_with("gain", x, 9.0)[0, 0, 3:],
        torch.tensor([1.0, 0.0]),
        msg="cut off at the bounds",
    )
    assert called("gain", x, 1, draw=0).amax() > 0.7 > called("gain", x, 1, draw=1).amax()


# What a severity means


@pytest.fixture(scope="module")
def calibrate(root):
    return import_file(root / "scripts" / "calibrate_distortions.py")


def test_ms_ssim(calibrate):
    x = Streams.of(0, torch.arange(3)).uniform(3, 32, 32)
    assert torch.allclose(calibrate.ms_ssim(x, x), torch.ones(3))
    flat = torch.full((1, 1, 32, 32), 0.5)
    # Two flat pictures differ in luminance alone, which counts at the coarser of the two scales:
    # 0.1333 of 0.1333 + 0.2363.
    luminance = (2 * 0.5 * 0.6 + 1e-4) / (0.25 + 0.36 + 1e-4)
    assert float(calibrate.ms_ssim(flat, flat + 0.1)) == pytest.approx(
        luminance ** (0.1333 / 0.3696), rel=1e-3
    )
    noise = x + 0.2 * Streams.of(1, torch.arange(3)).normal(3, 32, 32)
    assert (calibrate.ms_ssim(x, noise) < calibrate.ms_ssim(x, (x + noise) / 2)).all()


@pytest.mark.slow
@pytest.mark.nightly
def test_severities_mean_the_same_for_every_filter(calibrate, shared):
    """On images, beats and clips that the scales were not calibrated on, but for what a distortion
    cannot be: docs/reference/distortions.md."""
    pixels = np.load(shared / "cifar10" / "cifar10_test.npz")["images"][:64]
    x = {"small": torch.from_numpy(pixels.transpose(0, 3, 1, 2).astype(np.float32) / 255)}
    x["clips"] = calibrate.clips(shared, 1)[::2]
    x["beats"] = calibrate.heartbeats(shared / "ecg_mitbih" / "mitbih_beats_test_ds2.npz", 360)
    beyond = {("jpeg", 5), ("pixelate", 1), ("dropout", 5), ("gain", 5)}
    for knob in calibrate.KNOBS:
        size = knob.sizes[0]
        for severity in (1, 3, 5):
            if (knob.distortion, severity) not in beyond:
                strength_reached, aim = (
                    calibrate.strength(knob, x[size], knob.strengths_of(size)[severity - 1]),
                    calibrate.TARGETS[severity - 1],
                )
                off = abs(strength_reached - aim)
                assert off < (0.07 if knob.stepped else 0.05), (
                    f"{knob.distortion} {knob.scale} at severity {severity}: {strength_reached}"
                )


def test_every_filter_is_calibrated(calibrate):
    assert {knob.distortion for knob in calibrate.KNOBS} == set(calibrate.calibrated())
    assert len(plugins.names("distortion")) == len(calibrate.calibrated()) + 20
