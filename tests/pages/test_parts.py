import numpy as np

from brinell.analysis.distributions import Histogram, histogram, histogram_of_counts
from brinell.pages import figures
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
