"""The standing of models on the same samples: places with intervals, ties, and who leads.

Pages, terminals, claims and boards use `standing`, and show the statements of `leading`. A model
stands above another if McNemar's exact test says so, corrected for all pairs at that budget (Holm
1979). Intervals of ranks follow from these comparisons and hold together with a confidence of 95 %
(Mogstad, Romano, Shaikh & Wilhelm 2024, Inference for ranks).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from brinell.analysis.curve import RIGHT, WRONG
from brinell.analysis.families import joint_p_values
from brinell.analysis.inference import Order, Rank, holm, significant
from brinell.analysis.judgements import of_extreme, rate_subjects
from brinell.analysis.statements import Statement, Subject, state
from brinell.core.record import Array

TELLING = 0.1
"""Share of the clean accuracy that models keep on average at the budget at which they are
compared by default."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Models in their order at each budget above 0."""

    names: Sequence[str]
    n: int
    """Number of samples."""
    texts: Sequence[str]
    """The budgets as they were asked."""
    orders: Sequence[Order]
    """The models by robust accuracy, at each budget."""
    at: int
    """Position of the budget at which they are compared."""
    robust: Array
    """(models, samples, budgets) states, as in `analysis.curve`."""

    def rank(self, model: int) -> Rank:
        """Rank of a model at the compared budget."""
        return self.orders[self.at].rank(model)

    def rivals(self, model: int) -> list[str]:
        """Names of the models that are not shown to differ from this one at the compared budget."""
        return [self.names[rival] for rival in self.orders[self.at].rivals(model)]

    def joint_p_values(self, first: int, second: int) -> Array:
        """(budgets,) p-values of the difference of two models, corrected for all budgets and pairs.

        Whoever names the budget at which a model is farthest ahead has looked at all of them.
        """
        right = (self.robust == RIGHT).astype(np.int8)
        wrong = (self.robust == WRONG).astype(np.int8)
        differences = right[first] * wrong[second] - wrong[first] * right[second]
        pairs = len(self.names) * (len(self.names) - 1) // 2
        corrected: Array = np.minimum(pairs * joint_p_values(differences), 1.0)
        return corrected

    def leaders(self, budget: int) -> list[int]:
        """The models with the highest robust accuracy at a budget."""
        values = self.orders[budget].values
        return np.flatnonzero(values == values.max()).tolist()


def standing(
    names: Sequence[str], clean: Array, robust: Array, texts: Sequence[str], at: int | None = None
) -> Standing:
    """The standing of models on the same samples.

    Args:
        names: of the models, at least one.
        clean: (models, samples) states on clean inputs, as in `analysis.curve`.
        robust: (models, samples, budgets) states at each budget above 0; other states take no part.
            Each model is judged on one sample at least.
        texts: the budgets as they were asked.
        at: position of the budget at which the models are compared; by default the telling one.
    """
    orders = [order_models(robust[:, :, budget]) for budget in range(robust.shape[2])]
    if at is None:
        at = telling_budget(clean == RIGHT, robust == RIGHT)

    return Standing(
        names=names, n=robust.shape[1], texts=texts, orders=orders, at=at, robust=robust
    )


def order_models(states: Array) -> Order:
    """The models by their share of robust samples, from (models, samples) states at one budget."""
    from scipy.special import bdtr

    right = (states == RIGHT).astype(np.float64)
    wrong = (states == WRONG).astype(np.float64)

    # Samples on which the first is right and the second wrong.
    only = right @ wrong.T
    i, j = np.tril_indices(len(states), -1)

    # McNemar's exact test of each pair, corrected for all of them; `bdtr` is the probability of at
    # most so many of all that differ at even odds.
    fewer = np.minimum(only[i, j], only[j, i])
    differing = only[i, j] + only[j, i]
    two_sided = np.minimum(1.0, 2 * bdtr(fewer, differing.astype(int), 0.5))
    exact = np.where(2 * fewer == differing, 1.0, two_sided)
    p = np.ones((len(states), len(states)))
    p[i, j] = holm(exact)
    p[j, i] = p[i, j]
    return Order(right.sum(1) / (right + wrong).sum(1), p)


def telling_budget(clean: Array, robust: Array) -> int:
    """The largest budget at which the models keep the share `TELLING` of their clean accuracy.

    They keep it on average; else it is the smallest budget.

    The average over all models decides and not their difference, so that the choice favours no
    model.

    Args:
        clean: (models, samples) bool.
        robust: (models, samples, budgets) bool, at budgets above 0, ascending.
    """
    telling = np.flatnonzero(robust.mean((0, 1)) >= TELLING * clean.mean())
    return int(telling[-1]) if len(telling) else 0


def leading(standing: Standing) -> list[Statement]:
    """The most robust models at the compared budget, and each other model that is ahead of them at
    some budget.
    """
    leaders = standing.leaders(standing.at)
    ends = of_extreme(standing.orders[standing.at], leaders)
    rivals = [standing.names[index] for index in ends.pop("rivals")]
    rates = _subjects(standing, standing.at)
    leads = state(
        "leads",
        subjects=[rates[index] for index in leaders],
        rivals=rivals,
        quantity="robust accuracy",
        eps_text=standing.texts[standing.at],
        n=standing.n,
        # Who is alone, or ties with all, leads nobody.
        supported=not rivals and ends["compared"] > 0,
        **ends,
    )
    return [leads, *_crossings(standing, leaders)]


def _subjects(standing: Standing, budget: int) -> list[Subject]:
    """The rates of the models at a budget."""
    states = standing.robust[:, :, budget]
    right = (states == RIGHT).sum(1)
    totals = right + (states == WRONG).sum(1)
    return rate_subjects(standing.names, right.tolist(), totals.tolist())


def _crossings(standing: Standing, leaders: list[int]) -> Iterator[Statement]:
    """For each other model that leads at some budget, the budget at which it is farthest ahead."""
    budgets = range(len(standing.texts))
    places: dict[int, list[int]] = {}
    for budget in budgets:
        first = standing.leaders(budget)
        # A budget at which a leader is among the first crosses nothing.
        if not set(leaders) & set(first):
            places.setdefault(first[0], []).append(budget)

    pairs = len(standing.names) * (len(standing.names) - 1) // 2
    for rival, budgets_of_rival in places.items():
        values = [standing.orders[budget].values for budget in budgets]
        # Of several budgets the clearest, whose p-value is corrected for all of them.
        budget = max(
            budgets_of_rival, key=lambda index: values[index][rival] - values[index][leaders[0]]
        )
        p = float(standing.joint_p_values(rival, leaders[0])[budget])
        rates = _subjects(standing, budget)
        yield state(
            "crosses",
            subjects=[rates[rival]],
            against=[rates[leaders[0]]],
            quantity="robust accuracy",
            eps_text=standing.texts[budget],
            n=standing.n,
            compared=1,
            difference=rates[rival].value - rates[leaders[0]].value,
            p=p,
            supported=significant(p),
            family=pairs * len(standing.texts),
        )
