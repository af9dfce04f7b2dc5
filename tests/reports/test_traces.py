"""Signals on the page: what is marked, what the axes say, and that no peak is lost."""

import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from brinell.reports import traces

SAMPLING = {"rate": 125.0, "unit": "mV", "start": -0.496, "leads": ["MLII"]}


def pair(length=187, channels=1, span=(10, 20), by=0.5):
    clean = np.sin(np.arange(length) / 9)[None].repeat(channels, 0).astype(np.float32)
    adversarial = clean.copy()
    adversarial[-1, span[0] : span[1]] += by
    return clean, adversarial


def texts(svg):
    return re.findall(r">([^<>]+)</text>", svg)


def test_segments_are_where_any_channel_differs():
    clean, adversarial = pair(channels=2)
    adversarial[0, 15:30] -= 1
    adversarial[0, 40] += 1
    assert traces.segments(clean, adversarial) == [(10, 30), (40, 41)]
    assert traces.segments(clean, clean) == []
    assert traces.segments(clean, np.nextafter(clean, np.float32(9))) == [], "rounding is no touch"
    assert traces.segments(clean, adversarial + 5) == [(0, 187)]


@given(st.lists(st.booleans(), min_size=1, max_size=30))
def test_segments_cover_what_was_touched_and_nothing_else(mask):
    clean = np.zeros((1, len(mask)))
    adversarial = clean + np.array(mask)
    covered = np.zeros(len(mask), bool)
    for first, last in traces.segments(clean, adversarial):
        assert first < last and not covered[first:last].any()
        covered[first:last] = True
    assert covered.tolist() == mask


def test_words():
    assert traces.describe_change(*pair(length=100), SAMPLING) == "10\u00a0% of 0.8 s"
    clean, adversarial = pair(length=100)
    adversarial[0, 50] = 9
    assert traces.describe_change(clean, adversarial, None) == "11\u00a0% of 100 values (2 places)"


def test_axes_are_seconds_and_millivolts():
    svg = traces.overlay(*pair(), SAMPLING, title="a <b>")
    assert {"mV", "seconds", "−0.4", "0", "0.8", "1"} <= set(texts(svg))
    assert 'aria-label="a &lt;b&gt;"' in svg and "touched from -0.416 to -0.344 s" in svg
    assert svg.count("<polyline") == 2 and svg.count('class="touched"') == 1
    plain = traces.overlay(*pair(), None, title="t")
    assert "position" in texts(plain) and "mV" not in texts(plain) and "150" in texts(plain)
    change = traces.perturbation(*pair(by=0.002), SAMPLING, title="t")
    assert change.count("<polyline") == 1 and "0.002" in texts(change), "a scale of its own"


def test_the_mark_stands_where_the_values_are():
    svg = traces.overlay(*pair(length=101, span=(50, 51)), None, title="t")
    start, width = map(
        float,
        re.search(r'<rect class="touched" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', svg).groups(),
    )
    x = [float(point.split(",")[0]) for point in re.findall(r'points="([^"]+)"', svg)[0].split()]
    assert start < x[50] < start + width and start > x[49] and start + width < x[51]


def test_the_channels_that_changed_most_are_shown_in_their_order():
    clean, adversarial = pair(channels=12)
    adversarial[3] += 2
    adversarial[7] += 1
    names = {"leads": [f"L{i}" for i in range(12)], "rate": 100.0}
    svg = traces.overlay(clean, adversarial, names, title="t")
    assert [text for text in texts(svg) if text.startswith("L")] == [
        "L3",
        "L7",
        "L11",
    ] and svg.count("<polyline") == 6
    assert "channel 4" in texts(traces.overlay(clean, adversarial, None, title="t"))


def test_a_long_signal_keeps_its_peaks():
    for place in (0, 1234, 4999):
        clean = np.zeros((1, 5000))
        adversarial = clean.copy()
        adversarial[0, place] = 7
        svg = traces.overlay(clean, adversarial, SAMPLING, title="t")
        lines = [
            [tuple(map(float, point.split(","))) for point in line.split()]
            for line in re.findall(r'points="([^"]+)"', svg)
        ]
        assert all(len(line) <= 240 for line in lines)
        assert min(y for _, y in lines[1]) < min(y for _, y in lines[0]) - 50, (
            "upwards is a smaller y"
        )


def test_lanes_decoded():
    """Property: of random signals each value stands at its time and height, on one scale that holds
    0 with 6 % of margin.
    """
    for seed in range(8):
        rng = np.random.default_rng(seed)
        channels, length = int(rng.integers(1, 4)), int(rng.integers(2, 200))
        clean = rng.normal(size=(channels, length)) + 3 * (seed % 3 - 1)
        adversarial = clean.copy()
        first, last = sorted(rng.choice(length + 1, 2, replace=False).tolist())
        adversarial[:, first:last] += 0.5
        svg = traces.overlay(
            clean, adversarial, {"rate": 10.0, "start": 2.0, "unit": "V"}, title="t"
        )
        left_edge, lane, total = (
            float(re.search(r'class="axis" x1="([\d.]+)"', svg).group(1)),
            66 if channels > 1 else 132,
            float(re.search(r'viewBox="0 0 330 (\d+)"', svg).group(1)),
        )
        assert total == 20 + lane * channels + 31 and left_edge >= 40
        low, high = (
            min(0.0, clean.min(), adversarial.min()),
            max(0.0, clean.max(), adversarial.max()),
        )
        low, high = low - 0.06 * (high - low), high + 0.06 * (high - low)

        def spot(
            channel, index, value, left_edge=left_edge, lane=lane, length=length, low=low, high=high
        ):
            x = left_edge + index / (length - 1) * (322 - left_edge)
            return x, 20 + channel * lane + (lane - 11) * (1 - (value - low) / (high - low))

        polylines = [
            [tuple(map(float, point.split(","))) for point in text.split()]
            for text in re.findall(r'points="([^"]+)"', svg)
        ]
        expected = [
            [spot(channel, index, value) for index, value in enumerate(signal[channel])]
            for channel in range(channels)
            for signal in (clean, adversarial)
        ]
        assert all(
            np.allclose(a, b, atol=0.051) for a, b in zip(polylines, expected, strict=True)
        ), seed
        marks = re.findall(
            r'class="touched" x="(.*?)" y="(.*?)" width="(.*?)" height="(.*?)"><title>(.*?)<', svg
        )
        start, end = max(first - 0.5, 0), min(last - 0.5, length - 1)
        assert len(marks) == channels
        for channel, (*place, text) in enumerate(marks):
            x, y, width, height = map(float, place)
            assert (
                abs(x - spot(0, start, 0)[0]) < 0.06
                and abs(width - max(spot(0, end, 0)[0] - spot(0, start, 0)[0], 1)) < 0.11
            )
            assert (y, height) == (20 + channel * lane, lane - 11)
            assert text == f"touched from {2 + first / 10:.3g} to {2 + (last - 1) / 10:.3g} s"


def test_ticks_are_the_roundest_steps_that_fit():
    """Property against a naive search over steps of 1, 2 and 5 times powers of ten."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        low = float(rng.normal() * 10.0 ** rng.integers(-3, 4))
        high = low + float(10 ** rng.uniform(-3, 4))
        most = int(rng.integers(2, 9))
        steps = sorted(digit * 10.0**power for power in range(-6, 7) for digit in (1, 2, 5))
        step = next(step for step in steps if (high - low) / step <= most)
        expected = [
            n * step
            for n in range(int(np.ceil(low / step - 1e-9)), int(np.floor(high / step + 1e-9)) + 1)
        ]
        assert np.allclose(traces._ticks(low, high, most), expected), seed
    assert traces._ticks(3.0, 3.0, 4) == [3.0] and traces._ticks(0.0, 1.0, 2) == [0.0, 0.5, 1.0]
    assert [traces._written(value) for value in (-0.25, 1e-13, 1234567.0, 2.5)] == [
        "−0.25",
        "0",
        "1.23457e+06",
        "2.5",
    ]


def test_degenerate_signals_can_be_drawn():
    for shape in ((1, 1), (2, 1), (1, 2)):
        svg = traces.overlay(np.zeros(shape), np.zeros(shape), SAMPLING, title="t")
        assert "nan" not in svg and "inf" not in svg
