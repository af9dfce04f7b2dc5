"""Coverage of the intervals and error rates of the sentences of all studies, by simulation where the truth is known.

    OMP_NUM_THREADS=1 python -m benchmarks.inference --repetitions 4000

Prints two tables in Markdown: how often a 95 % interval holds the truth, and how often a sentence claims something where there
is nothing. `tests/analysis/test_simulations.py` holds both to their limits with fewer repetitions.
"""

import argparse
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.special import betaincinv, ndtr, ndtri

from brinell.analysis.auc import auc, auc_interval, pair_auc
from brinell.analysis.inference import Order, compare_groups, compare_rates, holm, order, significant
from brinell.analysis.means import Mean, mean, mean_difference, pseudo_values
from brinell.analysis.proportions import mcnemar
from brinell.analysis.ranks import chance, kendall_w, shuffled, spearman, spearman_interval, spearman_test
from brinell.core.intervals import MIN_PAIRS, ratio, wilson
from brinell.core.record import Array
from brinell.studies.per_class.alignment import telling_budget

GROUP = "proofs"
RUNS = {"": "--repetitions 64"}
LIMITS = 93.0, 97.0
"""Coverage that is allowed, in percent, averaged over the cases of a row."""
MOST_ERRORS = 6.0
"""False claims that are allowed, in percent."""
SAMPLES = 32
"""Samples that `brinell explain` takes by default."""

MEASURES: dict[str, tuple[Callable[[Array], Array], float]] = {
    "symmetric": (lambda u: betaincinv(4, 4, u), 0.5),
    "uniform": (lambda u: u, 0.5),
    "skewed (Dice of a hard object)": (lambda u: betaincinv(2, 5, u), 2 / 7),
    "near 1 (Dice of an easy object)": (lambda u: betaincinv(8, 1, u), 8 / 9),
    "U-shaped": (lambda u: betaincinv(0.5, 0.5, u), 0.5),
    "two fifths zero": (lambda u: np.where(u < 0.4, 0.0, betaincinv(2, 2, (u - 0.4).clip(0) / 0.6)), 0.3),
    "exponential (infidelity)": (lambda u: -np.log1p(-u), 1.0),
    "heavy tails (lognormal, sigma 1)": (lambda u: np.exp(normal_quantiles(u)), float(np.exp(0.5))),
}
"""Measures of a map by their quantile function, with their means."""


class Row(NamedTuple):
    """One simulated figure."""

    what: str
    size: str
    percent: float
    percentile: float | None = None
    """Coverage of the percentile bootstrap for comparison."""
    conservative: bool = False
    """True for an interval that may hold the truth more often: of several figures together, of a few groups or models."""


def normal_quantiles(u: Array) -> Array:
    """Quantiles of the normal distribution."""
    return np.asarray(ndtri(u.clip(1e-12, 1 - 1e-12)))


def draw_uniform(rng: np.random.Generator, counts: Array, icc: float) -> Array:
    """Uniform values (n,) of groups of these sizes, whose normal scores have the intraclass correlation `icc`."""
    shared = np.repeat(rng.normal(size=len(counts)), counts)
    return np.asarray(ndtr(np.sqrt(icc) * shared + np.sqrt(1 - icc) * rng.normal(size=len(shared))))


def draw_errors(rng: np.random.Generator, rates: Array, n: int) -> Array:
    """(*rates, n) bool: errors at these rates on samples that are hard for all or for none."""
    hardness = np.sqrt(0.5) * rng.normal(size=n)
    return np.asarray(ndtr(hardness + np.sqrt(0.5) * rng.normal(size=(*rates.shape, n))) < rates[..., None])


def order_models(robust: Array) -> Order:
    """Models by robust accuracy, as a study compares them."""
    return order(robust.mean(1), lambda i, j: mcnemar(int((robust[i] & ~robust[j]).sum()), int((robust[j] & ~robust[i]).sum())))


# --- how often intervals hold the truth -------------------------------------------------------------------------------


def _percentile(values: Array, groups: Array, rng: np.random.Generator) -> tuple[float, float]:
    """Percentile bootstrap over groups."""
    of = np.unique(groups, return_inverse=True)[1]
    sums, counts = np.bincount(of, weights=values), np.bincount(of)
    draws = rng.integers(len(sums), size=(500, len(sums)))
    low, high = np.quantile(sums[draws].sum(1) / counts[draws].sum(1), [0.025, 0.975])
    return float(low), float(high)


def _coverage(
    draw: Callable[[], tuple[Array, Array]], truth: float, repetitions: int, rng: np.random.Generator
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
    ones = np.ones(SAMPLES, dtype=int)
    for name, (quantile, truth) in MEASURES.items():

        def draw(quantile: Callable[[Array], Array] = quantile) -> tuple[Array, Array]:
            return quantile(draw_uniform(rng, ones, 0.0)), np.arange(SAMPLES)

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
        hits = [intervals[k].low <= truth <= intervals[k].high for k, truth in zip(counts.tolist(), p, strict=True)]
        yield Row("rate (Wilson)", f"{n} samples", 100 * float(np.mean(hits)))
    for groups in (8, 13, 30):
        sizes, hits = np.full(groups, 4), []
        for _ in range(repetitions):
            truth = rng.uniform(0.1, 0.9)
            values = (draw_uniform(rng, sizes, rng.choice([0.0, 0.3, 0.7])) < truth).astype(float)
            estimate = mean(values, np.repeat(np.arange(groups), sizes))
            assert estimate is not None and estimate.interval is not None
            hits.append(estimate.interval.low <= truth <= estimate.interval.high)
        yield Row("rate over groups (pointing)", f"{groups} groups of 4", 100 * float(np.mean(hits)), conservative=True)


def coverage_of_correlations(repetitions: int, rng: np.random.Generator) -> Iterator[Row]:
    """Spearman's correlation over models, true values between 0 and 0.8."""
    for n in (6, 8, 12, 20):
        hits = []
        for _ in range(repetitions):
            pearson = rng.uniform(0.0, 0.8)
            a = rng.normal(size=n)
            b = pearson * a + np.sqrt(1 - pearson**2) * rng.normal(size=n)
            value = spearman(a, b)
            assert value is not None and (interval := spearman_interval(value, n)) is not None
            hits.append(interval.low <= 6 / np.pi * np.arcsin(pearson / 2) <= interval.high)
        yield Row("Spearman's correlation", f"{n} models", 100 * float(np.mean(hits)), conservative=n <= 8)


def coverage_of_ratios(repetitions: int, rng: np.random.Generator) -> Iterator[Row]:
    """Mean corruption errors of fifteen kinds at five severities, relative to a reference."""
    rates = np.stack([np.linspace(0.1, 0.6, 15), np.linspace(0.15, 0.5, 15)])
    truth = float((rates[0] / rates[1]).mean())
    for n in (100, 1000):
        hits = []
        for _ in range(repetitions // 2):
            net, reference = draw_errors(rng, rates, n).astype(float)
            values = np.mean([pseudo_values(*pair) for pair in zip(net, reference, strict=True)], axis=0)
            estimate = mean_difference(values)
            assert estimate is not None and estimate.interval is not None
            hits.append(estimate.interval.low <= truth <= estimate.interval.high)
        yield Row("mean corruption error", f"{n} samples", 100 * float(np.mean(hits)))


def coverage_of_query_ratios(repetitions: int, rng: np.random.Generator) -> Iterator[Row]:
    """Mean queries of two players on the same inputs, with a budget."""
    for n in (MIN_PAIRS, 100):
        hits = []
        for _ in range(repetitions // 4):
            shared = np.minimum(rng.geometric(0.02, n), 200)
            own, other = (np.maximum(1.0, shared * rng.uniform(0.3, 1.3, n)) for _ in range(2))
            interval = ratio(own, other)[1]
            assert interval is not None
            hits.append(interval.low <= 1 <= interval.high)
        yield Row("ratio of mean queries (agents)", f"{n} inputs", 100 * float(np.mean(hits)))


def coverage_of_areas(repetitions: int, rng: np.random.Generator) -> Iterator[Row]:
    """Areas under ROC curves of normal scores, of which some are rounded: the adversarial ones narrow, alike or wide."""
    for m in (10, 30, 100, 180):
        hits = []
        for _ in range(repetitions):
            truth, width = rng.uniform(0.5, 0.98), rng.choice([1 / 3, 1.0, 3.0])
            clean = rng.normal(size=180)
            adversarial = ndtri(truth) * np.sqrt(1 + width**2) + width * rng.normal(size=m)
            if rng.random() < 0.25:
                clean, adversarial, truth = clean > 0.7, adversarial > 0.7, _area_of_alarms(truth, width, 0.7)
            interval = auc_interval(clean.astype(float), adversarial.astype(float))
            assert interval is not None
            hits.append(interval.low <= truth <= interval.high)
        size = f"{m} adversarial, 180 clean inputs"
        yield Row("area under a ROC curve (detect)", size, 100 * float(np.mean(hits)), conservative=m < 180)


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
        return [scale * means[labels] + np.sqrt(0.5) * (shared + rng.normal(size=shared.shape)) for scale in (0.7, 1.0)]

    first, other = (rng.integers(10, size=10**6) for _ in range(2))
    between = first != other
    one, within, across = spaces(first), spaces(first), spaces(other)
    truths = []
    for a, b, c in zip(one, within, across, strict=True):
        value = auc(np.linalg.norm(a - b, axis=1), np.linalg.norm(a - c, axis=1)[between])
        assert value is not None
        truths.append(value)
    for n, count in ((60, repetitions // 2), (250, repetitions // 4), (1000, repetitions // 16)):
        hits = []
        i, j = np.triu_indices(n, 1)
        for _ in range(count):
            labels = rng.integers(10, size=n)
            before, after = (pair_auc(np.linalg.norm(x[i] - x[j], axis=1), labels)[1] for x in spaces(labels))
            estimate = mean_difference(after - before)
            assert estimate is not None and estimate.interval is not None
            hits.append(estimate.interval.low <= truths[1] - truths[0] <= estimate.interval.high)
        yield Row("gain in the AUC of pairs (train-metric)", f"{n} samples", 100 * float(np.mean(hits)), conservative=n < 100)


def _holds(objects: Order, truth: Array) -> bool:
    """True if the intervals of all ranks hold the true ranks; of equal ones, each has all of their ranks."""
    for index, value in enumerate(truth):
        place = objects.place(index)
        if not place.low <= 1 + (truth > value).sum() + (truth == value).sum() - 1 or place.high < 1 + (truth > value).sum():
            return False
        if any(truth[i] <= value for i in objects.above(index)) or any(truth[i] >= value for i in objects.below(index)):
            return False
    return True


def coverage_of_ranks(repetitions: int, rng: np.random.Generator) -> Iterator[Row]:
    """Ranks of models and of classes, all together."""
    for n in (100, 500):
        truth = np.array([0.3, 0.3, 0.35, 0.45])
        hits = [_holds(order_models(draw_errors(rng, truth, n)), truth) for _ in range(repetitions // 2)]
        yield Row("ranks of 4 models, all together", f"{n} samples", 100 * float(np.mean(hits)), conservative=True)
    for n in (10, 50):
        truth, labels = np.repeat([0.2, 0.4, 0.6], [4, 3, 3]), np.repeat(np.arange(10), n)
        hits = [
            _holds(compare_groups((rng.random(10 * n) < truth[labels]).astype(float), labels, 0.0, 1.0), truth)
            for _ in range(repetitions // 2)
        ]
        yield Row("ranks of 10 classes, all together", f"{n} samples a class", 100 * float(np.mean(hits)), conservative=True)


def coverage(repetitions: int, seed: int = 0) -> list[Row]:
    """How often each kind of interval holds the truth."""
    parts = (
        coverage_of_rates,
        coverage_of_means,
        coverage_of_correlations,
        coverage_of_ratios,
        coverage_of_query_ratios,
        coverage_of_ranks,
        coverage_of_areas,
        coverage_of_gains,
    )
    return [row for number, part in enumerate(parts) for row in part(repetitions, np.random.default_rng([seed, number]))]


# --- how often sentences claim something where there is nothing ------------------------------------------------------


def _p(estimate: Mean | None) -> float:
    """The p-value of a mean."""
    assert estimate is not None
    return estimate.p


def _rate_of(claims: Callable[[], bool], repetitions: int) -> float:
    """How often something is claimed, in percent."""
    return 100 * float(np.mean([claims() for _ in range(repetitions)]))


def errors_of_explain(repetitions: int, rng: np.random.Generator) -> Iterator[Row]:
    """Nine methods that are no better than a control, on measures of several shapes."""
    groupings = {f"{SAMPLES} samples": np.ones(SAMPLES, dtype=int), "8 groups of 4": np.full(8, 4)}
    shapes = list(MEASURES.values())[:6]
    for size, counts in groupings.items():
        groups = np.repeat(np.arange(len(counts)), counts)

        def gaps(number: int, counts: Array = counts) -> list[Array]:
            """Differences of mean 0 of some methods that share their samples."""
            quantile, truth = shapes[rng.integers(len(shapes))]
            shared = quantile(draw_uniform(rng, counts, 0.3)) - truth
            return [0.5 * shared + quantile(draw_uniform(rng, counts, 0.3)) - truth for _ in range(number)]

        def faithful(groups: Array = groups) -> bool:
            """One control is beaten for certain, the other is as good."""
            estimates = [mean_difference(gap, groups) for gap in gaps(9)]
            return any(map(significant, holm([_p(e) if e is not None and e.value > 0 else 1.0 for e in estimates])))

        def above(groups: Array = groups) -> bool:
            """Any method is above or below the reference."""
            return any(map(significant, holm([_p(mean_difference(gap, groups)) for gap in gaps(9)])))

        yield Row("explain: a method is faithful (9 methods)", size, _rate_of(faithful, repetitions // 2))
        yield Row("explain: above or below another, forgets (9 methods)", size, _rate_of(above, repetitions // 2))


def errors_of_study(repetitions: int, rng: np.random.Generator) -> Iterator[Row]:
    """Models and classes of which two are alike at each end of the order."""
    for n in (100, 500):
        claims = _rate_of(lambda n=n: _claims_end(order_models(draw_errors(rng, _ends(4), n))), repetitions // 2)
        yield Row("study, compare: the most robust of 4 models", f"{n} samples", claims)
    for n in (5, 10, 50):
        labels = np.repeat(np.arange(10), n)

        def classes(labels: Array = labels) -> bool:
            values = (rng.random((4, len(labels))) < _ends(10)[labels]).mean(0)
            return _claims_end(compare_groups(values, labels, 0.0, 1.0))

        yield Row("study: a class loses most or least (10 classes)", f"{n} samples a class", _rate_of(classes, repetitions // 2))
    for n in (4, 5, 6, 10, 20):

        def correlated(n: int = n) -> bool:
            figures = rng.normal(size=(4, n))
            tests = [spearman_test(figures[0], figure, rng) for figure in figures[1:]]
            return any(map(significant, holm([test.p for test in tests if test is not None])))

        yield Row("study: a figure goes with robustness (3 figures)", f"{n} models", _rate_of(correlated, repetitions))
    labels = np.repeat(np.arange(10), 10)

    def spreads() -> bool:
        return _claims_spread(draw_errors(rng, np.full(4, 0.4), 100), labels, rng)

    def agreement() -> bool:
        robust = draw_errors(rng, np.full(4, 0.4), 100).astype(float)
        observed = float(kendall_w(np.stack([robust[:, labels == index].mean(1) for index in range(10)], 1)))
        return significant(chance(observed, kendall_w(shuffled(robust, labels, rng, 99))))

    yield Row("study: a model has a spread beyond chance (4 models)", "10 samples a class", _rate_of(spreads, repetitions // 2))
    yield Row("study: the models agree on the classes", "10 samples a class", _rate_of(agreement, repetitions))


BUDGETS = np.linspace(0, 1, 6)
"""Budgets of a study, of which it chooses one by its samples."""


def errors_at_default_budget(repetitions: int, rng: np.random.Generator) -> Iterator[Row]:
    """As `errors_of_study`, at the budget that the samples choose; it changes between samples as often as it can.

    The distance to the decision boundary is lognormal, hard for all models or for none, and so large that a tenth of the clean
    accuracy is left on average at a budget.
    """
    labels = np.repeat(np.arange(10), 10)
    shifts = {True: ndtri(_ends(4)), False: np.zeros(4)}

    def study(n: int, ends: bool) -> tuple[Array, Array]:
        """Answers (models, n) at the chosen budget, and the mean loss of each sample (n,)."""
        hardness = np.sqrt(0.5) * rng.normal(size=n)
        models = 0.25 * shifts[ends][:, None]
        distances = np.exp(
            0.6 * (hardness + np.sqrt(0.5) * rng.normal(size=(4, n)) + models) + rng.choice([-0.9, -0.8, -0.7, -0.6])
        )
        clean = rng.random((4, n)) < 0.95
        robust = clean[..., None] & (distances[..., None] > BUDGETS)
        index = telling_budget(clean, robust, BUDGETS)
        return robust[..., index], (clean & ~robust[..., index]).mean(0)

    for n in (100, 500):
        claims = _rate_of(lambda n=n: _claims_end(order_models(study(n, True)[0])), repetitions // 2)
        yield Row("study at its default budget: the most robust of 4 models", f"{n} samples", claims)
        claims = _rate_of(lambda n=n: _claims_any(order_models(study(n, False)[0])), repetitions // 2)
        yield Row("study at its default budget: one of 4 models is above another", f"{n} samples", claims)
    claims = _rate_of(lambda: _claims_any(compare_groups(study(100, False)[1], labels, 0.0, 1.0)), repetitions // 2)
    yield Row("study at its default budget: one of 10 classes loses more than another", "10 samples a class", claims)

    claims = _rate_of(lambda: _claims_spread(study(100, False)[0], labels, rng), repetitions // 2)
    yield Row("study at its default budget: a model has a spread beyond chance (4 models)", "10 samples a class", claims)


def _claims_spread(robust: Array, labels: Array, rng: np.random.Generator) -> bool:
    """True if any model (models, n) is said to have a spread between its classes beyond chance."""
    p_values = []
    for model in robust:
        rates = [model[labels == index].mean() for index in range(10)]
        null = shuffled(model[None], labels, rng, 99)[:, 0]
        p_values.append(chance(max(rates) - min(rates), null.max(1) - null.min(1)))
    return any(map(significant, holm(p_values)))


def _claims_any(objects: Order) -> bool:
    """True if any object is shown to be above another."""
    return any(objects.above(index) for index in range(len(objects.values)))


def _ends(count: int) -> Array:
    """(count,) rates of which the first two share the smallest and the last two the largest."""
    return np.array([0.15, 0.15, *np.full(count - 4, 0.5), 0.85, 0.85])


def _claims_end(objects: Order) -> bool:
    """True if one object is named as the first or the last of all."""
    return any(not objects.rivals(int(end)) for end in (objects.values.argmax(), objects.values.argmin()))


def errors_of_audit(repetitions: int, rng: np.random.Generator) -> Iterator[Row]:
    """Classes that are alike: the weakest and the strongest are said to differ."""
    for classes, n in ((10, 10), (10, 100), (100, 10)):

        def differ(classes: int = classes, n: int = n) -> bool:
            rates = compare_rates(rng.binomial(n, 0.4, classes), np.full(classes, n))
            return int(rates.values.argmax()) not in rates.rivals(int(rates.values.argmin()))

        yield Row(
            f"audit, harden: weakest and strongest of {classes} classes differ",
            f"{n} samples a class",
            _rate_of(differ, repetitions),
        )


def errors_of_corrupt(repetitions: int, rng: np.random.Generator) -> Iterator[Row]:
    """Nineteen corruptions of which two are alike at each end, and placements that change nothing."""

    def cells() -> bool:
        whole, placed = draw_errors(rng, np.full((2, 95), 0.4), 50)
        counts = zip((whole & ~placed).sum(1).tolist(), (placed & ~whole).sum(1).tolist(), strict=True)
        return any(map(significant, holm([mcnemar(*pair) for pair in counts])))

    def kinds() -> bool:
        accuracies = draw_errors(rng, np.repeat(_ends(19)[:, None], 5, 1), 200).mean(1)
        return _claims_end(order(accuracies.mean(1), lambda i, j: _p(mean_difference(accuracies[i] - accuracies[j]))))

    yield Row("corrupt: placement costs more or less in a cell (95 cells)", "50 samples", _rate_of(cells, repetitions // 8))
    yield Row("corrupt: a corruption costs most or least (19 kinds)", "200 samples", _rate_of(kinds, repetitions // 16))


def errors_of_transfer(repetitions: int, rng: np.random.Generator) -> Iterator[Row]:
    """Four sources of which two are alike at each end, on three further models each, with samples that are not eligible."""
    for n in (30, 300):

        def sources(n: int = n) -> bool:
            fooled, wrong = draw_errors(rng, np.repeat(_ends(4)[:, None], 3, 1), n), draw_errors(rng, np.full((4, 3), 0.2), n)
            values = [
                np.mean([pseudo_values(hits & ~out, ~out) for hits, out in zip(*pair, strict=True)], axis=0)
                for pair in zip(fooled, wrong, strict=True)
            ]
            return _claims_end(order([float(v.mean()) for v in values], lambda i, j: _p(mean_difference(values[i] - values[j]))))

        yield Row("transfer: the best of 4 sources; most or least affected", f"{n} samples", _rate_of(sources, repetitions))


def errors(repetitions: int, seed: int = 1) -> list[Row]:
    """How often each kind of sentence claims something where there is nothing."""
    parts = (errors_of_audit, errors_of_explain, errors_of_study, errors_at_default_budget, errors_of_corrupt, errors_of_transfer)
    return [row for number, part in enumerate(parts) for row in part(repetitions, np.random.default_rng([seed, number]))]


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=4000)
    options = parser.parse_args()
    print("| interval | size | coverage, % | percentile bootstrap, % |\n| --- | --- | --- | --- |")
    for row in coverage(options.repetitions):
        plain = "" if row.percentile is None else f"{row.percentile:.1f}"
        print(f"| {row.what} | {row.size} | {row.percent:.1f} | {plain} |", flush=True)
    print("\n| sentence | size | false claims, % |\n| --- | --- | --- |")
    for row in errors(options.repetitions):
        print(f"| {row.what} | {row.size} | {row.percent:.1f} |", flush=True)


if __name__ == "__main__":
    main()
