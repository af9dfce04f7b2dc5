"""A hardening read in plain words, each sentence made from its figures; what may be chance is not told as a finding."""

from collections.abc import Sequence

from brinell.analysis.results import PairedRate
from brinell.report.format import norm, percent, points, samples, short, which_classes
from brinell.studies.harden.analysis import HardenResult, Unseen

ALPHA = 0.05
"""Below it a p-value, corrected for the number of comparisons that are read together, counts as a finding."""
NAMED = 4
"""How many of several changes or classes a sentence names."""


def reading(result: HardenResult) -> list[str]:
    """What was won at the budget that was trained for, what it cost, whether it carries over, and for whom it broke."""
    pair = min(result.comparison.robust, key=lambda one: abs(one.eps - result.eps))
    said = [
        f"At {short(pair.eps)} ({norm(result.norm)}) {_moved('robust accuracy', pair)}",
        f"On untouched inputs {_moved('accuracy', result.comparison.clean)}",
        carries_over(result.unseen),
        who_paid(result),
        _classes(result, pair.eps),
    ]
    return [sentence for sentence in said if sentence]


def _moved(what: str, pair: PairedRate) -> str:
    if pair.difference is None or pair.low is None or pair.high is None:
        return f"nothing is known about the {what}."
    if pair.difference == 0:
        return f"the {what} stayed at {percent(pair.value_a)} ({points(pair.low)} to {points(pair.high)} points)."
    word = "rose" if pair.difference > 0 else "fell"
    chance = "" if pair.low > 0 or pair.high < 0 else "; the interval includes no change at all"
    return (
        f"the {what} {word} from {percent(pair.value_b)} to {percent(pair.value_a)}, by {points(pair.difference)} points "
        f"({points(pair.low)} to {points(pair.high)}){chance}."
    )


def carries_over(rows: Sequence[Unseen]) -> str:
    """What of the changes that were not trained on the model takes better, and what worse, beyond chance."""
    unseen = [row for row in rows if not row.seen]
    if not unseen:
        return ""
    found = [row for row in unseen if row.p < ALPHA]
    better, worse = [row.name for row in found if row.difference > 0], [row.name for row in found if row.difference < 0]
    said = f"Of {len(unseen)} changes that were not trained on, {len(better)} are taken better than before"
    if not worse:
        return f"{said}, and none worse, beyond chance."
    return f"{said}, and {len(worse)} worse, beyond chance: robustness does not carry over to {_listed(worse)}."


def who_paid(result: HardenResult) -> str:
    """The classes that lost accuracy on untouched inputs beyond chance, or that none did."""
    known = [one for one in result.comparison.per_class if one.clean.difference is not None]
    lost = sorted((one for one in known if one.clean.only_b > one.clean.only_a), key=lambda one: one.clean.difference or 0.0)
    if not lost:
        return "No class lost accuracy on untouched inputs." if known else ""
    beyond = [one for one in lost if one.p_clean is not None and one.p_clean < ALPHA]
    most, others = (beyond or lost)[0], [one.name for one in beyond[1:]]
    pair = most.clean
    fell = (
        f"{most.name}: {percent(pair.value_b)} to {percent(pair.value_a)}, {points(pair.difference)} points "
        f"({points(pair.low)} to {points(pair.high)}, {samples(pair.n)})"
    )
    if not beyond:
        return f"No class lost accuracy on untouched inputs beyond chance; the largest loss is that of {fell}."
    too = f"; {_listed(others)} lost beyond chance too" if others else ""
    return f"The class that paid most on untouched inputs is {fell}{too}."


def _classes(result: HardenResult, eps: float) -> str:
    at = min(range(len(result.after.eps)), key=lambda one: abs(result.after.eps[one] - eps))
    text = which_classes(result.after, at)
    return f"The hardened model class by class: {text[0].lower()}{text[1:]}" if result.after.eps[at] > 0 else ""


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
