"""The golden data: a published study of five models, whose class totals and means must come out of
these tables.
"""

import numpy as np
import pytest

from brinell.analysis.robust_accuracy import summarise

MODELS = [
    "Peng2023Robust",
    "Wang2023Better_WRN-70-16",
    "Wang2023Better_WRN-28-10",
    "Bai2023Improving_edm",
    "Cui2023Decoupled_WRN-28-10",
]
SAMPLES = [57, 41, 51, 49, 40, 48, 54, 47, 57, 56]
CLEAN = [
    [91.23, 97.56, 96.08, 83.67, 92.50, 89.58, 92.59, 97.87, 98.25, 94.64],
    [92.98, 100.00, 94.12, 83.67, 92.49, 89.58, 92.59, 95.74, 96.49, 94.64],
    [92.98, 97.56, 94.12, 83.67, 92.50, 87.50, 92.59, 97.87, 96.49, 96.43],
    [96.49, 100.00, 96.08, 87.76, 95.21, 89.58, 92.59, 97.87, 98.25, 96.43],
    [92.98, 100.00, 96.08, 83.67, 92.51, 85.42, 92.59, 97.87, 96.49, 94.64],
]
TOTAL_DROP = [
    [-19.30, -7.32, -33.33, -40.81, -34.99, -22.91, -18.52, -19.15, -14.04, -8.93],
    [-21.05, -17.07, -29.41, -42.85, -40.00, -21.00, -18.52, -19.14, -14.03, -8.93],
    [-19.38, -9.74, -33.43, -49.04, -42.01, -29.08, -24.05, -21.29, -15.81, -10.72],
    [-24.56, -17.07, -31.37, -48.98, -42.73, -29.16, -24.07, -23.40, -17.55, -10.73],
    [-22.80, -17.07, -31.37, -44.89, -39.98, -25.00, -24.07, -23.40, -17.54, -10.71],
]
MEAN_PER_MODEL = [-21.93, -23.20, -25.46, -26.96, -25.68]
MEAN_PER_CLASS = [-21.42, -13.65, -31.78, -45.31, -39.94, -25.43, -21.85, -21.28, -15.79, -10.00]
CLEAN_OVERALL = [93.40, 93.23, 93.17, 95.03, 93.23]
EPS = [i / 255 for i in range(9)]


def counts(model: int) -> tuple[np.ndarray, np.ndarray]:
    """Whole samples per class that come nearest to the published rates: right on clean inputs, and
    still right at 8/255.
    """
    n, clean, drop = np.array(SAMPLES), np.array(CLEAN[model]), np.array(TOTAL_DROP[model])
    return np.rint(clean / 100 * n).astype(int), np.rint((clean + drop) / 100 * n).astype(int)


@pytest.fixture(scope="module")
def study(synthetic):
    labels = np.repeat(np.arange(10), SAMPLES)
    parts = []
    for number, model in enumerate(MODELS):
        right, robust = counts(number)
        breaks = []
        for n, k, r in zip(SAMPLES, right, robust, strict=True):
            # The samples lost are spread evenly over the eight budgets.
            broken_distances = 0.5 / 255 + np.arange(k - r) % 8 / 255
            breaks += [*[0.0] * (n - k), *broken_distances, *[np.inf] * r]
        first = np.array(breaks)
        parts.append(synthetic.records(model, labels, EPS, np.stack([first, first])))
    manifest = synthetic.manifest(MODELS, EPS, 500, [str(c) for c in range(10)])
    return summarise(manifest, synthetic.join(*parts), "study")


def test_sample_counts(study):
    assert study.n == sum(SAMPLES) == 500
    for model in study.models:
        assert [c.n for c in model.per_class] == SAMPLES


def test_clean_table(study, subtests):
    for number in range(5):
        with subtests.test(number=number):
            # Four cells of the source (all of class 4) are not k/40 for any k; they lie within one
            # sample.
            clean = [100 * c.clean.value for c in study.models[number].per_class]
            assert np.delete(clean, 4) == pytest.approx(np.delete(CLEAN[number], 4), abs=0.0051)
            assert clean[4] == pytest.approx(CLEAN[number][4], abs=0.3)
            assert 100 * study.models[number].clean_accuracy.value == pytest.approx(
                CLEAN_OVERALL[number], abs=0.25
            )


def test_totals_and_means(study, subtests):
    for number, tolerance in [(0, 0.025), (1, 0.2), (2, 0.5), (3, 0.25), (4, 0.025)]:
        with subtests.test(number=number, tolerance=tolerance):
            model = study.models[number]
            totals = [100 * c.total_drop for c in model.per_class]
            # In three models some cells of the source are no whole number of samples; half a sample
            # is at most 1.25 points.
            assert totals == pytest.approx(TOTAL_DROP[number], abs=tolerance)
            assert sum(totals) / len(totals) == pytest.approx(MEAN_PER_MODEL[number], abs=0.05)


def test_the_conclusion(study):
    for model in study.models:
        totals = [c.total_drop for c in model.per_class]
        assert int(np.argmin(totals)) == 3


def test_rows_of_the_layout_add_up(study):
    for model in study.models:
        for c in model.per_class:
            assert c.drop[0] == 0
            assert c.robust[0].value == c.clean.value
            assert sum(c.drop) == pytest.approx(c.total_drop)
