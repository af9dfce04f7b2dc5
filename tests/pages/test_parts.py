import re
from html import unescape
from itertools import combinations

import numpy as np
import pytest

from brinell.analysis.distributions import Histogram, histogram, histogram_of_counts
from brinell.analysis.results import Rate
from brinell.analysis.robust_accuracy import rate
from brinell.pages import figures
from brinell.pages import format as words
from brinell.pages.gallery import amplification, picture


def test_curve_puts_points_where_they_belong():
    rates = [rate(10, 10, eps=0.0), rate(5, 10, eps=0.1), rate(0, 10, eps=0.2)]
    svg = figures.curve([figures.Series(name="m", rates=rates, style=0)], [(0.0, "0"), (0.2, "0.2")], title="t <1>")
    frame = figures.LARGE
    middle = (frame.x(0.5), frame.y(0.5))
    assert f'cx="{middle[0]:.1f}" cy="{middle[1]:.1f}"' in svg
    assert svg.count("<circle") == 3 and svg.count("<polygon") == 1
    assert 'aria-label="t &lt;1&gt;"' in svg


def test_curve_leaves_gaps_where_there_is_no_data():
    no_rate = Rate(eps=0.1, value=None, low=None, high=None, n=0, k=0)
    svg = figures.curve([figures.Series(name="m", rates=[no_rate], style=0)], [(0.1, "0.1")], title="t")
    assert "<circle" not in svg and "<polyline" not in svg


TEXT = re.compile(r'<text class="(\w+)[^"]*" x="([\d.]+)" y="([\d.]+)"(?: textLength="([\d.]+)")?[^>]*>([^<]*)<')


def boxes(svg: str, letter: float, size: float = 12.5) -> list[tuple[str, float, float, float, float]]:
    """Every label of a figure with its left, right, top and bottom in a font whose letters are so wide and 1.4 high."""
    found = []
    for anchor, x, y, length, text in TEXT.findall(svg):
        width = float(length or letter * size * len(unescape(text)))
        left = float(x) - {"end": 1, "mid": 0.5, "start": 0}[anchor] * width
        found.append((unescape(text), left, left + width, float(y) - 1.1 * size, float(y) + 0.3 * size))
    return found


@pytest.mark.parametrize("letter", [0.4, 0.85])
def test_labels_have_room_in_any_font(letter):
    """Property: of figures with random budgets, counts and names no label leaves the figure or lies on another."""
    faults = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        eps = np.unique(np.append(rng.lognormal(size=rng.integers(1, 20)), 0.0)).tolist()
        ticks = [(e, str(rng.choice([f"{e:.4g}", f"{round(e * 255)}/255"]))) for e in eps]
        line = figures.Series(name="m", rates=[rate(1, 2, eps=e) for e in eps], style=0)
        counts = Histogram(edges=np.arange(len(eps) + 1.0), counts=rng.integers(0, 10 ** rng.integers(1, 8), len(eps)))
        label = "eps " * int(rng.integers(1, 12))
        for size, svg in (
            (12.5, figures.curve([line], ticks, title="t", axis=label)),
            (11.5, figures.curve([line], ticks, title="t", small=True)),
            (12.5, figures.histogram(counts, title="t", label=label, style=0, ticks=ticks if seed % 2 else None)),
        ):
            width, height = map(int, re.search(r'viewBox="0 0 (\d+) (\d+)"', svg).groups())
            labels = boxes(svg, letter, size)
            faults += [(seed, box) for box in labels if box[1] < -1 or box[2] > width + 1 or box[3] < -3 or box[4] > height + 1]
            faults += [
                (seed, a[0], b[0])
                for a, b in combinations(labels, 2)
                if a[1] < b[2] and b[1] < a[2] and a[3] < b[4] - 0.5 and b[3] < a[4] - 0.5
            ]
            assert len(labels) >= 3
    assert faults == []


def test_the_largest_budget_is_named_and_evenly_spaced_ones_get_evenly_spaced_ticks():
    def texts(values: list[float]) -> list[str]:
        ticks = [(figures.LARGE.x(value / max(values)), f"{value:g}") for value in values]
        return [text for _, text in figures._spaced(figures.LARGE, ticks)]

    assert texts([i * 0.0375 for i in range(9)]) == ["0", "0.075", "0.15", "0.225", "0.3"]
    assert texts([0.1]) == ["0.1"] and texts([0.0, 0.001, 0.002, 0.004, 0.5])[-1] == "0.5"


def test_histogram_counts_everything():
    values = np.array([0.0, 0.05, 0.1, 0.1 + 1e-9])
    bars = histogram(values, bins=4, top=0.1)
    assert bars.counts.tolist() == [1, 1, 0, 2]
    assert histogram_of_counts(np.array([1.0, 3.0, 3.0])).counts.tolist() == [1, 0, 2]
    assert histogram_of_counts(np.array([1.0, 10.0, 100.0, 1000.0]), bins=2).counts.tolist() == [2, 2]
    assert histogram_of_counts(np.array([])) is None
    counts = histogram_of_counts(np.arange(1.0, 5001.0))
    assert counts.counts.sum() == 5000 and (np.diff(counts.edges) >= 1).all()
    assert histogram(np.array([]), bins=4) is None
    svg = figures.histogram(
        Histogram(edges=np.array([0.0, 1, 2]), counts=np.array([3, 1])),
        title="t",
        label="l",
        style=0,
        ticks=[(0.0, "0"), (2.0, "2")],
    )
    assert svg.count("<rect") == 2


def test_amplification_is_round_and_fits():
    assert amplification(np.array([0.025]), 1.0) == 20
    assert amplification(np.array([-8 / 255]), 1.0) == 10
    assert amplification(np.array([0.9]), 1.0) == 1
    assert amplification(np.zeros(3), 1.0) == 1
    assert amplification(np.array([1e-9]), 1.0) == 50_000


def test_large_pictures_shrink_and_tiny_ones_stay_sharp():
    assert 'class="thumb tiny"' in picture(np.zeros((1, 8, 8)), "image", 0.0, 1.0, title="t")
    assert 'class="thumb"' in picture(np.zeros((3, 224, 224)), "image", 0.0, 1.0, title="t")
    assert picture(np.zeros(5), "vector", 0.0, 1.0, title="t").count("<polyline") == 1


def test_numbers_as_people_read_them():
    assert words.percent(0.71349) == "71.3\u00a0%"
    assert words.percent(None) == words.points(None) == words.p_value(None) == "–"
    assert (words.points(-0.1234), words.points(0.1), words.points(-0.0001)) == ("−12.3", "+10.0", "0.0")
    assert (words.p_value(1e-9), words.p_value(0.0312)) == ("< 0.0001", "0.031")
    assert (words.seconds(3.21), words.seconds(90), words.seconds(7200)) == ("3.2 s", "1.5 min", "2.0 h")
    assert words.count(1234567) == "1\u202f234\u202f567"
    assert (words.short(0.031372), words.short(1234.4)) == ("0.0314", "1\u202f234")
    assert words.clip("a rather long name, indeed", 14) == "a rather long…"


def test_classes_that_are_alike_are_not_said_to_differ():
    """Property: classes with one true rate get the caveat; classes far apart, with samples enough, get none about the ends."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        classes, n = int(rng.integers(2, 40)), int(rng.integers(5, 60))
        alike = sorted(rng.binomial(n, 0.4, classes).tolist())
        if alike[0] < alike[-1]:
            assert "the order may be chance" in words._order_caveat([rate(k, n) for k in alike]), seed
    apart = words._order_caveat([rate(k, 200) for k in (10, *[100] * classes, 190)])
    assert apart == ""
    assert "1 of the other 2 classes may be as weak" in words._order_caveat([rate(k, 200) for k in (10, 12, 190)])
