import numpy as np

from brinell.analysis.distributions import Histogram, histogram, histogram_of_counts
from brinell.analysis.robust_accuracy import rate
from brinell.pages import figures
from brinell.pages import format as words
from brinell.pages.gallery import amplification, picture


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
