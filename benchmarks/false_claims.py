"""How often the sentences of all studies claim something where there is nothing;
`benchmarks.inference` prints the figures.
"""

from collections.abc import Callable, Iterator

import numpy as np
from scipy.special import ndtri

from benchmarks.simulation import MEASURES, SAMPLES, Row, draw_errors, draw_uniform, order_models
from brinell.analysis.inference import (
    Order,
    compare_groups,
    compare_rates,
    holm,
    order,
    significant,
)
from brinell.analysis.means import Mean, mean_difference, pseudo_values
from brinell.analysis.proportions import mcnemar
from brinell.analysis.standing import telling_budget
from brinell.core.record import Array

MOST_ERRORS = 6.0
"""False claims that are allowed, in percent."""


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
            return [
                0.5 * shared + quantile(draw_uniform(rng, counts, 0.3)) - truth
                for _ in range(number)
            ]

        def faithful(groups: Array = groups) -> bool:
            """One control is beaten for certain, the other is as good."""
            estimates = [mean_difference(gap, groups) for gap in gaps(9)]
            return any(
                map(
                    significant,
                    holm([_p(e) if e is not None and e.value > 0 else 1.0 for e in estimates]),
                )
            )

        yield Row(
            "explain: a method is faithful (9 methods)", size, _rate_of(faithful, repetitions // 2)
        )


def errors_of_study(repetitions: int, rng: np.random.Generator) -> Iterator[Row]:
    """Models and classes of which two are alike at each end of the order."""
    for n in (100, 500):
        claims = _rate_of(
            lambda n=n: _claims_end(order_models(draw_errors(rng, _ends(4), n))), repetitions // 2
        )
        yield Row("compare: the most robust of 4 models", f"{n} samples", claims)
    for n in (5, 10, 50):
        labels = np.repeat(np.arange(10), n)

        def classes(labels: Array = labels) -> bool:
            values = (rng.random((4, len(labels))) < _ends(10)[labels]).mean(0)
            return _claims_end(compare_groups(values, labels, 0.0, 1.0))

        yield Row(
            "compare: a class loses most or least (10 classes)",
            f"{n} samples a class",
            _rate_of(classes, repetitions // 2),
        )


BUDGETS = np.linspace(0, 1, 6)
"""Budgets of a study, of which it chooses one by its samples."""


def errors_at_default_budget(repetitions: int, rng: np.random.Generator) -> Iterator[Row]:
    """As `errors_of_study`, at the budget that the samples choose; it changes between samples as
    often as it can.

    The distance to the decision boundary is lognormal, hard for all models or for none, and so
    large that a tenth of the clean accuracy is left on average at a budget.
    """
    labels = np.repeat(np.arange(10), 10)
    shifts = {True: ndtri(_ends(4)), False: np.zeros(4)}

    def study(n: int, ends: bool) -> tuple[Array, Array]:
        """Answers (models, n) at the chosen budget, and the mean loss of each sample (n,)."""
        hardness = np.sqrt(0.5) * rng.normal(size=n)
        models = 0.25 * shifts[ends][:, None]
        distances = np.exp(
            0.6 * (hardness + np.sqrt(0.5) * rng.normal(size=(4, n)) + models)
            + rng.choice([-0.9, -0.8, -0.7, -0.6])
        )
        clean = rng.random((4, n)) < 0.95
        robust = clean[..., None] & (distances[..., None] > BUDGETS)
        index = 1 + telling_budget(clean, robust[..., 1:])
        return robust[..., index], (clean & ~robust[..., index]).mean(0)

    for n in (100, 500):
        claims = _rate_of(
            lambda n=n: _claims_end(order_models(study(n, True)[0])), repetitions // 2
        )
        yield Row(
            "compare at its default budget: the most robust of 4 models", f"{n} samples", claims
        )
        claims = _rate_of(
            lambda n=n: _claims_any(order_models(study(n, False)[0])), repetitions // 2
        )
        yield Row(
            "compare at its default budget: one of 4 models is above another",
            f"{n} samples",
            claims,
        )
    claims = _rate_of(
        lambda: _claims_any(compare_groups(study(100, False)[1], labels, 0.0, 1.0)),
        repetitions // 2,
    )
    yield Row(
        "compare at its default budget: one of 10 classes loses more than another",
        "10 samples a class",
        claims,
    )


def _claims_any(objects: Order) -> bool:
    """True if any object is shown to be above another."""
    return any(objects.above(index) for index in range(len(objects.values)))


def _ends(count: int) -> Array:
    """(count,) rates of which the first two share the smallest and the last two the largest."""
    return np.array([0.15, 0.15, *np.full(count - 4, 0.5), 0.85, 0.85])


def _claims_end(objects: Order) -> bool:
    """True if one object is named as the first or the last of all."""
    return any(
        not objects.rivals(int(end)) for end in (objects.values.argmax(), objects.values.argmin())
    )


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
        before, after = draw_errors(rng, np.full((2, 95), 0.4), 50)
        counts = zip(
            (before & ~after).sum(1).tolist(), (after & ~before).sum(1).tolist(), strict=True
        )
        return any(map(significant, holm([mcnemar(*pair) for pair in counts])))

    def kinds() -> bool:
        accuracies = draw_errors(rng, np.repeat(_ends(19)[:, None], 5, 1), 200).mean(1)
        return _claims_end(
            order(
                accuracies.mean(1), lambda i, j: _p(mean_difference(accuracies[i] - accuracies[j]))
            )
        )

    yield Row(
        "corrupt: placement costs more or less in a cell (95 cells)",
        "50 samples",
        _rate_of(cells, repetitions // 8),
    )
    yield Row(
        "corrupt: a corruption costs most or least (19 kinds)",
        "200 samples",
        _rate_of(kinds, repetitions // 16),
    )


def errors_of_transfer(repetitions: int, rng: np.random.Generator) -> Iterator[Row]:
    """Four sources of which two are alike at each end, on three further models each, with samples
    that are not eligible.
    """
    for n in (30, 300):

        def sources(n: int = n) -> bool:
            fooled, wrong = (
                draw_errors(rng, np.repeat(_ends(4)[:, None], 3, 1), n),
                draw_errors(rng, np.full((4, 3), 0.2), n),
            )
            values = [
                np.mean(
                    [pseudo_values(hits & ~out, ~out) for hits, out in zip(*pair, strict=True)],
                    axis=0,
                )
                for pair in zip(fooled, wrong, strict=True)
            ]
            return _claims_end(
                order(
                    [float(v.mean()) for v in values],
                    lambda i, j: _p(mean_difference(values[i] - values[j])),
                )
            )

        yield Row(
            "transfer: the best of 4 sources; most or least affected",
            f"{n} samples",
            _rate_of(sources, repetitions),
        )


def errors(repetitions: int, seed: int = 1) -> list[Row]:
    """How often each kind of sentence claims something where there is nothing."""
    parts = (
        errors_of_audit,
        errors_of_explain,
        errors_of_study,
        errors_at_default_budget,
        errors_of_corrupt,
        errors_of_transfer,
    )
    return [
        row
        for number, part in enumerate(parts)
        for row in part(repetitions, np.random.default_rng([seed, number]))
    ]
