"""Coverage of the intervals and error rates of the sentences of all studies, by simulation where
the truth is known.

    OMP_NUM_THREADS=1 python -m benchmarks.inference --repetitions 4000

Prints three tables in Markdown: how often a 95 % interval holds the truth, how often each kind of
statement is false where nothing is there and made where something is, and how often further
sentences claim something where there is nothing. `tests/analysis/test_simulations.py` holds both to their
limits with fewer repetitions.
"""

import argparse
from collections.abc import Callable, Iterator

import numpy as np
from scipy.spatial.distance import pdist
from scipy.special import ndtr, ndtri

from benchmarks.false_claims import errors
from benchmarks.simulation import MEASURES, SAMPLES, Row, draw_errors, draw_uniform, order_models
from benchmarks.statement_rates import cells
from brinell.analysis.auc import auc, auc_interval, pair_auc
from brinell.analysis.average_precision import interval, leave_out
from brinell.analysis.inference import Order, compare_groups
from brinell.analysis.means import mean, mean_difference, pseudo_values
from brinell.analysis.sequences import ValueCounts, log_wealth
from brinell.core.intervals import wilson
from brinell.core.record import Array
from brinell.rlab.ratios import ratio

GROUP = "proofs"
RUNS = {"": "--repetitions 64"}
PAGE = 4000
"""Repetitions of the page of results."""
LIMITS = 93.0, 97.0
"""Coverage that is allowed, in percent, averaged over the cases of a row."""


def _percentile(values: Array, groups: Array, rng: np.random.Generator) -> tuple[float, float]:
    """Percentile bootstrap over groups."""
    of = np.unique(groups, return_inverse=True)[1]
    sums, counts = np.bincount(of, weights=values), np.bincount(of)
    draws = rng.integers(len(sums), size=(500, len(sums)))
    low, high = np.quantile(sums[draws].sum(1) / counts[draws].sum(1), [0.025, 0.975])
    return float(low), float(high)


def _coverage(
    draw: Callable[[], tuple[Array, Array]],
    truth: float,
    repetitions: int,
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Coverage of our interval, where there is one, and of the percentile bootstrap, in percent."""
    hits, plain_hits = [], []
    for number in range(repetitions):
        values, groups = draw()
        estimate = mean(values, groups)
        assert estimate is not None
        if estimate.interval is not None:
            hits.append(estimate.interval.low <= truth <= estimate.interval.high)
        if number % 4 == 0:
            low, high = _percentile(values, groups, rng)
            plain_hits.append(low <= truth <= high)
    return 100 * float(np.mean(hits)), 100 * float(np.mean(plain_hits))


def coverage_of_means(repetitions: int, rng: np.random.Generator) -> Iterator[Row]:
    """Means of measures over samples, and over groups of samples."""
    single_groups = np.ones(SAMPLES, dtype=int)
    for name, (quantile, truth) in MEASURES.items():

        def draw(quantile: Callable[[Array], Array] = quantile) -> tuple[Array, Array]:
            return quantile(draw_uniform(rng, single_groups, 0.0)), np.arange(SAMPLES)

        yield Row(f"mean, {name}", f"{SAMPLES} samples", *_coverage(draw, truth, repetitions, rng))
    quantile, truth = MEASURES["skewed (Dice of a hard object)"]
    for counts in ([4] * 6, [4] * 8, [1, 2, 3] * 4 + [4], [1] * 20 + [4] * 10):
        sizes = np.array(counts)

        def grouped(sizes: Array = sizes) -> tuple[Array, Array]:
            icc = rng.choice([0.0, 0.3, 0.9])
            return quantile(draw_uniform(rng, sizes, icc)), np.repeat(np.arange(len(sizes)), sizes)

        spread = f"{sizes.min()}" if np.ptp(sizes) == 0 else f"{sizes.min()} to {sizes.max()}"
        size = f"{len(sizes)} groups of {spread}"
        yield Row("mean over groups, skewed", size, *_coverage(grouped, truth, repetitions, rng))


def coverage_of_rates(repetitions: int, rng: np.random.Generator) -> Iterator[Row]:
    """Rates over samples, and over groups; the truth is drawn anew each time."""
    for n in (SAMPLES, 100, 1000):
        p = rng.uniform(0.02, 0.98, repetitions)
        counts = rng.binomial(n, p)
        intervals = {k: wilson(k, n) for k in range(n + 1)}
        hits = [
            intervals[k].low <= truth <= intervals[k].high
            for k, truth in zip(counts.tolist(), p, strict=True)
        ]
        yield Row("rate (Wilson)", f"{n} samples", 100 * float(np.mean(hits)))
    for groups in (8, 13, 30):
        sizes, hits = np.full(groups, 4), []
        for _ in range(repetitions):
            truth = rng.uniform(0.1, 0.9)
            values = (draw_uniform(rng, sizes, rng.choice([0.0, 0.3, 0.7])) < truth).astype(float)
            estimate = mean(values, np.repeat(np.arange(groups), sizes))
            assert estimate is not None and estimate.interval is not None
            hits.append(estimate.interval.low <= truth <= estimate.interval.high)
        yield Row(
            "rate over groups (pointing)",
            f"{groups} groups of 4",
            100 * float(np.mean(hits)),
            conservative=True,
        )


def coverage_of_ratios(repetitions: int, rng: np.random.Generator) -> Iterator[Row]:
    """Mean corruption errors of fifteen kinds at five severities, relative to a reference."""
    rates = np.stack([np.linspace(0.1, 0.6, 15), np.linspace(0.15, 0.5, 15)])
    truth = float((rates[0] / rates[1]).mean())
    for n in (100, 1000):
        hits = []
        for _ in range(repetitions // 2):
            net, reference = draw_errors(rng, rates, n).astype(float)
            values = np.mean(
                [pseudo_values(*pair) for pair in zip(net, reference, strict=True)], axis=0
            )
            estimate = mean_difference(values)
            assert estimate is not None and estimate.interval is not None
            hits.append(estimate.interval.low <= truth <= estimate.interval.high)
        yield Row("mean corruption error", f"{n} samples", 100 * float(np.mean(hits)))


def coverage_of_query_ratios(repetitions: int, rng: np.random.Generator) -> Iterator[Row]:
    """Mean queries of two players on the same inputs, with a budget."""
    for n in (30, 100):
        hits = []
        for _ in range(repetitions // 4):
            shared = np.minimum(rng.geometric(0.02, n), 200)
            first, second = (np.maximum(1.0, shared * rng.uniform(0.3, 1.3, n)) for _ in range(2))
            ends = ratio(first, second)[1]
            if ends is not None:
                hits.append(ends.low <= 1 <= ends.high)
        percent = 100 * float(np.mean(hits))
        yield Row("ratio of mean queries (agents)", f"{n} inputs", percent, conservative=True)


def coverage_of_pictures(repetitions: int, rng: np.random.Generator) -> Iterator[Row]:
    """Accuracy of the pixels of pictures that differ in size and difficulty."""
    for n in (6, 10, 100, 1000):
        hits = []
        weights = leave_out(n)
        for _ in range(repetitions // 2):
            size = rng.gamma(2.0, size=n)
            right = size * rng.beta(3, 1.5, n)
            ends = interval(right.sum() / size.sum(), weights @ right / (weights @ size), n)
            assert ends is not None
            hits.append(ends.low <= 2 / 3 <= ends.high)
        percent = 100 * float(np.mean(hits))
        yield Row("figure of pictures (jackknife)", f"{n} pictures", percent, conservative=True)


def coverage_of_sequences(repetitions: int, rng: np.random.Generator) -> Iterator[Row]:
    """A share and a difference of two models on the same samples, looked at after each of up to a
    thousand samples.
    """
    looks = np.arange(1, 1001)
    hits: dict[str, list[bool]] = {"share": [], "paired difference": []}
    for _ in range(repetitions // 8):
        truth = rng.uniform(0.05, 0.95)
        ones = np.cumsum(rng.random(1000) < truth)
        hits["share"].append(_holds_at_all(ValueCounts(looks - ones, 0 * looks, ones), truth))
    for _ in range(repetitions // 8):
        # Shares of the samples on which one alone is right, and on which both agree.
        only_a, only_b, alike = rng.dirichlet(np.ones(3))
        outcome = rng.choice(3, 1000, p=[only_b, alike, only_a])
        counts = ValueCounts(*(np.cumsum(outcome == value) for value in range(3)))
        truth = (1 + only_a - only_b) / 2
        hits["paired difference"].append(_holds_at_all(counts, truth))
    for name, of_kind in hits.items():
        percent = 100 * float(np.mean(of_kind))
        yield Row(f"{name} at every look (sequence)", "1000 looks", percent, conservative=True)


def _holds_at_all(counts: ValueCounts, truth: float) -> bool:
    """Whether a sequence holds the truth at every look, at which so many values were seen."""
    above = log_wealth(counts, truth).max()
    below = log_wealth(counts.mirrored(), 1 - truth).max()
    return bool(max(above, below) < np.log(2 / 0.05))


def coverage_of_areas(repetitions: int, rng: np.random.Generator) -> Iterator[Row]:
    """Areas under ROC curves of normal scores, of which some are rounded: the adversarial ones
    narrow, alike or wide.
    """
    for m in (10, 30, 100, 180):
        hits = []
        for _ in range(repetitions):
            truth, width = rng.uniform(0.5, 0.98), rng.choice([1 / 3, 1.0, 3.0])
            clean = rng.normal(size=180)
            adversarial = ndtri(truth) * np.sqrt(1 + width**2) + width * rng.normal(size=m)
            if rng.random() < 0.25:
                clean, adversarial, truth = (
                    clean > 0.7,
                    adversarial > 0.7,
                    _area_of_alarms(truth, width, 0.7),
                )
            interval = auc_interval(clean.astype(float), adversarial.astype(float))
            assert interval is not None
            hits.append(interval.low <= truth <= interval.high)
        size = f"{m} adversarial, 180 clean inputs"
        yield Row(
            "area under a ROC curve (detect)",
            size,
            100 * float(np.mean(hits)),
            conservative=m < 180,
        )


def _area_of_alarms(area: float, width: float, threshold: float) -> float:
    """Area under the curve of an alarm at a threshold, for normal scores with this area."""
    detected = ndtr((ndtri(area) * np.sqrt(1 + width**2) - threshold) / width)
    return float((1 + detected - ndtr(-threshold)) / 2)


def coverage_of_gains(repetitions: int, rng: np.random.Generator) -> Iterator[Row]:
    """Gain in the AUC of pairs of ten classes in a space where their means are farther apart."""
    means = 1.5 * rng.normal(size=(10, 3))

    def spaces(labels: Array) -> list[Array]:
        """(n, 3) points of samples in both spaces, with noise of which half is shared."""
        shared = rng.normal(size=(len(labels), 3))
        return [
            scale * means[labels] + np.sqrt(0.5) * (shared + rng.normal(size=shared.shape))
            for scale in (0.7, 1.0)
        ]

    first, second = (rng.integers(10, size=10**6) for _ in range(2))
    unequal = first != second
    anchors, partners, strangers = spaces(first), spaces(first), spaces(second)
    truths = []
    for a, b, c in zip(anchors, partners, strangers, strict=True):
        value = auc(np.linalg.norm(a - b, axis=1), np.linalg.norm(a - c, axis=1)[unequal])
        assert value is not None
        truths.append(value)
    # A repetition costs as the square of n, and 1,000 samples tell no more than 500 do.
    for n, count in ((60, repetitions // 2), (250, repetitions // 4), (500, repetitions // 4)):
        hits = []
        for _ in range(count):
            labels = rng.integers(10, size=n)
            before, after = [pair_auc(pdist(x), labels)[1] for x in spaces(labels)]
            estimate = mean_difference(after - before)
            assert estimate is not None and estimate.interval is not None
            hits.append(estimate.interval.low <= truths[1] - truths[0] <= estimate.interval.high)
        yield Row(
            "gain in the AUC of pairs (train metric)",
            f"{n} samples",
            100 * float(np.mean(hits)),
            conservative=n < 100,
        )


def _holds(objects: Order, truth: Array) -> bool:
    """True if the intervals of all ranks hold the true ranks; of equal ones, each has all of their
    ranks.
    """
    for index, value in enumerate(truth):
        place = objects.rank(index)
        if (
            not place.low <= 1 + (truth > value).sum() + (truth == value).sum() - 1
            or place.high < 1 + (truth > value).sum()
        ):
            return False
        if any(truth[i] <= value for i in objects.above(index)) or any(
            truth[i] >= value for i in objects.below(index)
        ):
            return False
    return True


def coverage_of_ranks(repetitions: int, rng: np.random.Generator) -> Iterator[Row]:
    """Ranks of models and of classes, all together."""
    for n in (100, 500):
        truth = np.array([0.3, 0.3, 0.35, 0.45])
        hits = [
            _holds(order_models(draw_errors(rng, truth, n)), truth) for _ in range(repetitions // 2)
        ]
        yield Row(
            "ranks of 4 models, all together",
            f"{n} samples",
            100 * float(np.mean(hits)),
            conservative=True,
        )
    for n in (10, 50):
        truth, labels = np.repeat([0.2, 0.4, 0.6], [4, 3, 3]), np.repeat(np.arange(10), n)
        hits = [
            _holds(
                compare_groups(
                    (rng.random(10 * n) < truth[labels]).astype(float), labels, 0.0, 1.0
                ),
                truth,
            )
            for _ in range(repetitions // 2)
        ]
        yield Row(
            "ranks of 10 classes, all together",
            f"{n} samples a class",
            100 * float(np.mean(hits)),
            conservative=True,
        )


def coverage(repetitions: int, seed: int = 0) -> list[Row]:
    """How often each kind of interval holds the truth."""
    parts = (
        coverage_of_rates,
        coverage_of_means,
        coverage_of_ratios,
        coverage_of_query_ratios,
        coverage_of_pictures,
        coverage_of_sequences,
        coverage_of_ranks,
        coverage_of_areas,
        coverage_of_gains,
    )
    return [
        row
        for number, part in enumerate(parts)
        for row in part(repetitions, np.random.default_rng([seed, number]))
    ]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=PAGE)
    options = parser.parse_args()
    print("| interval | size | coverage, % | percentile bootstrap, % |\n| --- | --- | --- | --- |")
    for row in coverage(options.repetitions):
        plain = "" if row.percentile is None else f"{row.percentile:.1f}"
        print(f"| {row.title} | {row.size} | {row.percent:.1f} | {plain} |", flush=True)
    print("\n| kind | size | false, % | power, % | coverage, % |\n| --- | --- | --- | --- | --- |")
    # A cell of 600 draws has a standard error of 0.9 points at 5 %.
    for cell in cells(options.repetitions * 600 // PAGE):
        figures = ("" if value is None else f"{value:.1f}" for value in cell[2:])
        print(f"| {cell.kind} | {cell.size} | {' | '.join(figures)} |", flush=True)
    print("\n| sentence | size | false claims, % |\n| --- | --- | --- |")
    for row in errors(options.repetitions):
        print(f"| {row.title} | {row.size} | {row.percent:.1f} |", flush=True)


if __name__ == "__main__":
    main()
