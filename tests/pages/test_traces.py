"""Signals on the page: what is marked, what the axes say, and that no peak is lost."""

import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from brinell.pages import traces

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
    start, width = map(float, re.search(r'<rect class="touched" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', svg).groups())
    x = [float(point.split(",")[0]) for point in re.findall(r'points="([^"]+)"', svg)[0].split()]
    assert start < x[50] < start + width and start > x[49] and start + width < x[51]


def test_the_channels_that_changed_most_are_shown_in_their_order():
    clean, adversarial = pair(channels=12)
    adversarial[3] += 2
    adversarial[7] += 1
    names = {"leads": [f"L{i}" for i in range(12)], "rate": 100.0}
    svg = traces.overlay(clean, adversarial, names, title="t")
    assert [text for text in texts(svg) if text.startswith("L")] == ["L3", "L7", "L11"] and svg.count("<polyline") == 6
    assert "channel 4" in texts(traces.overlay(clean, adversarial, None, title="t"))


def test_a_long_signal_keeps_its_peaks():
    for place in (0, 1234, 4999):
        clean = np.zeros((1, 5000))
        adversarial = clean.copy()
        adversarial[0, place] = 7
        svg = traces.overlay(clean, adversarial, SAMPLING, title="t")
        lines = [[tuple(map(float, point.split(","))) for point in line.split()] for line in re.findall(r'points="([^"]+)"', svg)]
        assert all(len(line) <= 240 for line in lines)
        assert min(y for _, y in lines[1]) < min(y for _, y in lines[0]) - 50, "upwards is a smaller y"


def test_degenerate_signals_can_be_drawn():
    for shape in ((1, 1), (2, 1), (1, 2)):
        svg = traces.overlay(np.zeros(shape), np.zeros(shape), SAMPLING, title="t")
        assert "nan" not in svg and "inf" not in svg
