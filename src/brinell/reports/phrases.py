"""Sentences that several reports share."""

from collections.abc import Iterator, Sequence

import numpy as np

from brinell.analysis.inference import compare_rates, significant
from brinell.analysis.results import ClassResult, ModelResult, OfClass
from brinell.analysis.standing import Standing
from brinell.reports.numbers import counted, full_text, listed, percent

ENOUGH = 5
"""With fewer samples, a class is not called the weakest or the strongest."""
MOST_NAMED = 6
"""Number of classes that a sentence names; of more it says how many."""


def who_leads(standing: Standing) -> list[str]:
    """The most robust models at the compared budget, who may be as robust, and who leads at other
    budgets.
    """
    return [_leaders(standing), *_crossings(standing)]


def _leaders(standing: Standing) -> str:
    order, text = standing.orders[standing.at], standing.texts[standing.at]
    leaders = standing.leaders(standing.at)
    value = percent(order.values[leaders[0]])
    names = listed([standing.names[leader] for leader in leaders])
    if len(leaders) == len(standing.names) > 1:
        return (
            f"{names} have the same robust accuracy at {text}: {value} of "
            f"{counted(standing.n, 'sample')}."
        )
    rivals = sorted({rival for leader in leaders for rival in order.rivals(leader)} - set(leaders))
    if rivals:
        verb = "has" if len(leaders) == 1 else "have"
        return (
            f"{names} {verb} the highest robust accuracy at {text}, {value}, but "
            f"with {counted(standing.n, 'sample')} "
            f"{listed([standing.names[rival] for rival in rivals])} may be as robust."
        )
    verb = "is" if len(leaders) == 1 else "are"
    others = [name for model, name in enumerate(standing.names) if model not in leaders]
    if not others:
        return f"{names}, the only model, has a robust accuracy of {value} at {text}."
    rest, correction = (
        ("each other model", ", corrected for all pairs") if others[1:] else (others[0], "")
    )
    return (
        f"{names} {verb} the most robust at {text}, with {value}: {rest} is shown to "
        f"be less robust (McNemar's test{correction})."
    )


def _crossings(standing: Standing) -> Iterator[str]:
    """For each other model that leads at some budget, the budget at which it is farthest ahead."""
    (leader, *_) = tied = standing.leaders(standing.at)
    leads: dict[int, list[int]] = {}
    for budget in range(len(standing.texts)):
        leaders = standing.leaders(budget)
        if not set(tied) & set(leaders):
            leads.setdefault(leaders[0], []).append(budget)
    for other, budgets in leads.items():
        budget = max(
            budgets,
            key=lambda index: (
                standing.orders[index].values[other] - standing.orders[index].values[leader]
            ),
        )
        order = standing.orders[budget]
        chance = (
            "more than chance explains at the budgets looked at"
            if significant(standing.joint_p_values(other, leader)[budget])
            else "which may be chance"
        )
        yield (
            f"At {standing.texts[budget]} {standing.names[other]} leads with "
            f"{percent(order.values[other])}, against "
            f"{percent(order.values[leader])} for {standing.names[leader]}, {chance}."
        )


def ranked(classes: Sequence[ClassResult], index: int) -> list[ClassResult]:
    """Classes with samples enough, from the weakest to the strongest at one eps; of equal rates the
    better attested is first.
    """
    eligible = [c for c in classes if c.robust[index].value is not None and c.n >= ENOUGH]
    return sorted(
        eligible,
        key=lambda c: (c.robust[index].value or 0.0, c.robust[index].high or 1.0, c.class_),
    )


def class_label(c: OfClass) -> str:
    """A class by name, with its number where the name is not the number."""
    return f"class {c.name}" if c.name == str(c.class_) else f"{c.name} (class {c.class_})"


def weakest_classes(model: ModelResult, index: int) -> str:
    """The weakest and the strongest class at the eps of this position, and how many others may be
    as weak or as strong.
    """
    order = ranked(model.per_class, index)
    if len(model.per_class) < 2 or model.eps[index] == 0:
        return "There are no classes to tell apart."
    if len(order) < 2:
        most = counted(max(c.n for c in model.per_class), "sample")
        return (
            f"{most} per class at most, in {len(model.per_class)} classes, are too "
            "few to tell classes apart."
        )
    worst, best, text = order[0].robust[index], order[-1].robust[index], model.eps_text[index]
    few = few_samples(model, index)
    if worst.value == best.value:
        return (
            f"All {len(order)} classes have the same rate at {text}: {percent(worst.value)}.{few}"
        )
    tied = [c for c in order if c.robust[index].value == worst.value]
    weakest = (
        f"is {class_label(order[0])}"
        if len(tied) == 1
        else f"are {listed([class_label(c) for c in tied], most=len(tied))}"
    )
    return (
        f"At {text} the weakest {weakest} with {full_text(worst)}, the strongest "
        f"{class_label(order[-1])} with {full_text(best)}."
        f"{_doubt(order, tied, index)}{few}"
    )


def _doubt(order: Sequence[ClassResult], tied: Sequence[ClassResult], index: int) -> str:
    """The classes that may be as weak as the weakest ones, and how many may be as strong as the
    strongest; empty for none.
    """
    successes = [c.robust[index].k for c in order]
    rivals = compare_rates(np.array(successes), np.array([c.robust[index].n for c in order]))
    others = len(order) - 1
    if others in rivals.rivals(0):
        return " Chance may explain the order."

    weak = [order[rival] for rival in rivals.rivals(0) if order[rival] not in tied]
    strong = rivals.rivals(others)
    names = listed([class_label(c) for c in weak], most=MOST_NAMED)
    parts = [f"{names} may be as weak"] if weak else []
    if strong:
        rivals_of_the_best = counted(len(strong), "class", "classes")
        parts.append(f"{rivals_of_the_best} may be as strong as {class_label(order[-1])}")
    return f" But {', and '.join(parts)}." if parts else ""


def few_samples(model: ModelResult, index: int) -> str:
    """A sentence that names the classes with too few samples to be called weak or strong; empty for
    none.
    """
    few = [c for c in model.per_class if c.n < ENOUGH and c.robust[index].value is not None]
    names = [f"{c.name} ({c.robust[index].k} of {c.robust[index].n})" for c in few]
    if not few:
        return ""
    return f" Fewer than {ENOUGH} samples, so in no order: {listed(names, most=MOST_NAMED)}."


def weakest_names(classes: Sequence[ClassResult], index: int) -> tuple[float, list[str]] | None:
    """The lowest rate of a class at one eps, and all classes that have it; those with few samples
    are marked.
    """
    judged = [c for c in classes if c.robust[index].value is not None]
    if len(judged) < 2:
        return None
    lowest = min(c.robust[index].value or 0.0 for c in judged)
    tied = [c for c in judged if c.robust[index].value == lowest]
    return lowest, [class_label(c) + f" ({c.n} only)" * (c.n < ENOUGH) for c in tied]
