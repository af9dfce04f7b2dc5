"""What rates support: statements about classes, models and changes, each with its corrections."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from brinell.analysis.inference import LEVEL, Order, compare_rates, significant
from brinell.analysis.proportions import exact_interval, paired_difference
from brinell.analysis.results import ACCURACY, ClassResult, PairedRate, Rate, Share
from brinell.analysis.statements import KINDS, KindName, Statement, Subject, state
from brinell.core.intervals import CONFIDENCE, Interval, clopper_pearson_low

ENOUGH = KINDS["weakest"].least_n
"""Samples of a class without which it is in no order."""


def lower_end(rate: Rate) -> float:
    """What a rate is shown to reach, one-sided at 2.5 %; below all rates where it is unknown.

    Wilson's end is above the truth of few samples more often than that, and the exact one is not.
    Shares of pixels vary by picture, which their own interval knows.
    """
    if rate.low is None:
        return -1.0
    return min(rate.low, clopper_pearson_low(rate.k, rate.n, (1 - CONFIDENCE) / 2))


def rate_subjects(
    names: Sequence[str], successes: Sequence[int], counts: Sequence[int]
) -> list[Subject]:
    """Rates with intervals that hold for all of them together (Bonferroni), whichever is chosen."""
    error = LEVEL / max(1, len(names))
    entries = []
    for name, k, n in zip(names, successes, counts, strict=True):
        low, high = exact_interval(k, n, 1 - error)
        entries.append(Subject(name=name, value=k / n, low=low, high=high, k=k, n=n))
    return entries


def of_extreme(order: Order, members: Sequence[int]) -> dict[str, Any]:
    """Whom nothing parts from members that share the largest or smallest value, and the p-value
    that parts all others.
    """
    competitors = [index for index in range(len(order.values)) if index not in members]
    p_of = {index: float(order.p[index, members].max()) for index in competitors}
    rivals = [index for index in competitors if not significant(p_of[index])]
    rivals.sort(key=lambda index: abs(order.values[index] - order.values[members[0]]))
    return {
        "rivals": rivals,
        "compared": len(competitors),
        "p": max(p_of.values(), default=None),
        "family": len(order.values) * (len(order.values) - 1) // 2,
    }


def extreme_classes(
    classes: Sequence[ClassResult], position: int, eps_text: str
) -> list[Statement]:
    """The weakest and the strongest class at one budget, or that all are alike; of clean inputs
    `eps_text` is empty.

    It is empty for fewer than two judged classes, and names no subject if fewer than two have
    `ENOUGH` samples.
    """
    rates = {c.label: c.robust[position] for c in classes if c.robust[position].n}
    if len(rates) < 2:
        return []
    names = [name for name, rate in rates.items() if rate.n >= ENOUGH]
    counts = [rates[name].n for name in names]
    successes = [rates[name].k for name in names]
    sparse = [
        Subject(name=name, value=rate.k / rate.n, k=rate.k, n=rate.n)
        for name, rate in rates.items()
        if rate.n < ENOUGH
    ]
    quantity = next(iter(rates.values())).quantity
    accuracy = "robust accuracy" if eps_text else "clean accuracy"
    common: dict[str, Any] = {
        "quantity": accuracy if quantity == ACCURACY else quantity,
        "eps_text": eps_text,
        "n": sum(rate.n for rate in rates.values()),
        "sparse": sparse,
    }

    if len(names) < 2:
        return [
            state("weakest", subjects=[], compared=len(names), supported=False, family=0, **common)
        ]
    order = compare_rates(np.array(successes), np.array(counts))
    of_classes = rate_subjects(names, successes, counts)
    lowest = np.flatnonzero(order.values == order.values.min()).tolist()
    highest = np.flatnonzero(order.values == order.values.max()).tolist()
    if lowest == highest:
        return [state("alike", subjects=of_classes, supported=False, family=0, **common)]

    statements = []
    extremes: tuple[tuple[KindName, list[int], list[int]], ...] = (
        ("weakest", lowest, highest),
        ("strongest", highest, lowest),
    )
    for kind, members, opposite in extremes:
        ends = of_extreme(order, members)
        # Where the two ends are not told apart, nothing is said of any order.
        ends["supported"] = not set(ends["rivals"]) & set(opposite)
        ends["rivals"] = [names[index] for index in ends["rivals"]]
        subjects = [of_classes[index] for index in members]
        statements.append(state(kind, subjects=subjects, **common, **ends))
    return statements


def extreme_means(
    order: Order,
    names: Sequence[str],
    quantity: str,
    n: int,
    *,
    eps_text: str = "",
    kinds: tuple[KindName, KindName] = ("most", "least"),
) -> list[Statement]:
    """The objects with the highest and the lowest mean; empty for fewer than two, or equal ones."""
    if len(names) < 2 or np.ptp(order.values) == 0:
        return []

    statements = []
    # Several objects may share the extreme value: all of them are named.
    for kind, extreme in zip(kinds, (order.values.max(), order.values.min()), strict=True):
        members = np.flatnonzero(order.values == extreme).tolist()
        facts = of_extreme(order, members)
        facts["rivals"] = [names[index] for index in facts["rivals"]]
        subjects = [Subject(name=names[index], value=float(extreme)) for index in members]
        common = {"supported": not facts["rivals"], "quantity": quantity, "eps_text": eps_text}
        statements.append(state(kind, subjects=subjects, n=n, **common, **facts))
    return statements


def joint_interval(pair: PairedRate, p: float, family: int) -> Interval:
    """Interval of the difference of a pair that is read with others, and never contradicts its
    corrected p-value.

    It has a confidence of 1 - 0.05 / family (Bonferroni) and reaches 0 exactly if the p-value is
    above 5 %: Newcombe's interval and McNemar's exact test can disagree where few samples differ,
    and a step of Holm's, or a test of all budgets together, shows more than Bonferroni's.
    """
    counts = (pair.both_robust, pair.only_a, pair.only_b, pair.neither)
    interval = paired_difference(*counts, confidence=1 - LEVEL / family)
    assert interval is not None, "there is a sample"
    low, high = interval
    if not significant(p):
        return Interval(min(low, 0.0), max(high, 0.0))
    return Interval(max(low, 0.0), high) if pair.difference > 0 else Interval(low, min(high, 0.0))


def change(
    pair: PairedRate,
    quantity: str,
    eps_text: str = "",
    *,
    family: int = 1,
    p: float | None = None,
) -> Statement:
    """How a rate changed from model B to model A of a pair.

    `p` is corrected for a family of comparisons; by default it is McNemar's, for one alone.
    """
    p = pair.p if p is None else p
    kind: KindName = "rose" if pair.difference > 0 else "fell"
    # Without a difference there is no direction that could be claimed.
    if pair.difference == 0:
        kind = "unchanged"
    low, high = joint_interval(pair, p, family)

    after, before = rate_subjects(
        ("after", "before"),
        (pair.both_robust + pair.only_a, pair.both_robust + pair.only_b),
        (pair.n, pair.n),
    )
    return state(
        kind,
        subjects=[after],
        against=[before],
        quantity=quantity,
        eps_text=eps_text,
        n=pair.n,
        compared=1,
        difference=pair.difference,
        low=low,
        high=high,
        p=p,
        supported=significant(p),
        family=family,
    )


def evasions(
    names: Sequence[str], rates: Sequence[tuple[Share, Share, Share, Share]], eps_text: str
) -> list[Statement]:
    """How often attacks that know a detector evade it, for each of several detectors.

    `rates` are of each the samples on which they do, of those that are right, at least one, and the
    robust accuracy without the detector, with it under other attacks, and under these ones.
    """
    subjects = rate_subjects(names, [rate[0].k for rate in rates], [rate[0].n for rate in rates])
    return [
        state(
            "evades",
            subjects=[subject],
            against=[
                Subject(name=name, value=rate.value or 0.0, k=rate.k, n=rate.n)
                for name, rate in zip(("without", "static", "adaptive"), others, strict=True)
            ],
            quantity="samples evaded",
            eps_text=eps_text,
            n=subject.n,
            supported=bool(subject.k),
            family=len(names),
        )
        for subject, (_, *others) in zip(subjects, rates, strict=True)
    ]
