"""Sentences that several reports share."""

from collections.abc import Iterator

from brinell.analysis.inference import significant
from brinell.analysis.standing import Standing
from brinell.reports.numbers import counted, listed, percent


def who_leads(standing: Standing) -> list[str]:
    """The most robust models at the compared budget, who may be as robust, and who leads at other budgets."""
    return [_leaders(standing), *_crossings(standing)]


def _leaders(standing: Standing) -> str:
    order, text = standing.orders[standing.at], standing.texts[standing.at]
    leaders = standing.leaders(standing.at)
    value = percent(order.values[leaders[0]])
    names = listed([standing.names[leader] for leader in leaders])
    if len(leaders) == len(standing.names) > 1:
        return f"{names} have the same robust accuracy at {text}: {value} of {counted(standing.n, 'sample')}."
    rivals = sorted({rival for leader in leaders for rival in order.rivals(leader)} - set(leaders))
    if rivals:
        verb = "has" if len(leaders) == 1 else "have"
        return (
            f"{names} {verb} the highest robust accuracy at {text}, {value}, but with {counted(standing.n, 'sample')} "
            f"{listed([standing.names[rival] for rival in rivals])} may be as robust."
        )
    verb = "is" if len(leaders) == 1 else "are"
    return (
        f"{names} {verb} the most robust at {text}, with {value}: each other model is shown to be less robust (McNemar's test, "
        "corrected for all pairs)."
    )


def _crossings(standing: Standing) -> Iterator[str]:
    """For each other model that leads at some budget, the budget at which it is farthest ahead."""
    (leader, *_) = tied = standing.leaders(standing.at)
    leads: dict[int, list[int]] = {}
    for budget in range(len(standing.texts)):
        others = standing.leaders(budget)
        if not set(tied) & set(others):
            leads.setdefault(others[0], []).append(budget)
    for other, budgets in leads.items():
        budget = max(budgets, key=lambda index: standing.orders[index].values[other] - standing.orders[index].values[leader])
        order = standing.orders[budget]
        chance = "more than chance explains" if significant(order.p[other, leader]) else "which may be chance"
        yield (
            f"At {standing.texts[budget]} {standing.names[other]} leads with {percent(order.values[other])}, against "
            f"{percent(order.values[leader])} for {standing.names[leader]}, {chance}."
        )
