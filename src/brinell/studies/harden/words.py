"""A hardening read in plain words, each sentence made from its figures; what may be chance is not told as a finding."""

from collections.abc import Sequence

from brinell.analysis.results import ClassComparison, PairedRate
from brinell.analysis.robust_accuracy import minus
from brinell.pages.format import named, norm, percent, points, samples, short, which_classes
from brinell.studies.harden.analysis import HardenResult, Unseen
from brinell.studies.harden.records import SEVERITY, STEPS, attacked_by

ALPHA = 0.05
"""Below it a p-value, corrected for the number of comparisons that are read together, counts as a finding."""
NAMED = 4
"""How many of several changes or classes a sentence names."""
MANY = 20
"""Samples of a class from which on a sentence says nothing of their number."""


def reading(result: HardenResult) -> list[str]:
    """What was won at the budget that was trained for, what it cost, whether it carries over, and for whom it broke."""
    pair = min(result.comparison.robust, key=lambda one: abs(one.eps - result.eps))
    said = [
        f"At {short(pair.eps)} ({norm(result.norm)}) {_moved('robust accuracy', pair)}",
        _weaker_audit(result, pair),
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
        return (
            f"the {what} was {percent(pair.value_a)} before and after; with {samples(pair.n)}, a change of "
            f"{100 * max(pair.high, -pair.low):.1f} points cannot be excluded."
        )
    word = "rose" if pair.difference > 0 else "fell"
    chance = "" if pair.low > 0 or pair.high < 0 else "; this may be chance"
    return (
        f"the {what} {word} from {percent(pair.value_b)} to {percent(pair.value_a)}, by {points(pair.difference)} points "
        f"({points(pair.low)} to {points(pair.high)}){chance}."
    )


def _weaker_audit(result: HardenResult, pair: PairedRate) -> str:
    """Where PGD at the same budget and on the same samples breaks more than the audit, its headline is too high."""
    same = [row for row in result.unseen if row.name == attacked_by(result.norm, result.eps) and row.n == pair.n]
    if not same or pair.eps != result.eps or (minus(pair.value_a, same[0].after.value) or 0.0) <= 0:
        return ""
    return (
        f"PGD of {STEPS} steps leaves {percent(same[0].after.value)} there, less than the attacks of the audit: the robust "
        "accuracy is at most that, and stronger attacks should audit it."
    )


def carries_over(rows: Sequence[Unseen]) -> str:
    """What of the changes that were not trained on the model takes better, and what worse, beyond chance."""
    unseen = [row for row in rows if not row.seen]
    if not unseen:
        return ""
    found = [row for row in unseen if row.p < ALPHA]
    better, worse = [row for row in found if row.difference > 0], [row for row in found if row.difference < 0]
    counted = f"{len(better) or 'none'} better than before and {len(worse) or 'none'} worse, beyond chance"
    said = f"Of {len(unseen)} changes that were not trained on, the model takes {counted}"
    if worse:
        return f"{said}: robustness does not carry over to {_changes(worse)}."
    return f"{said}: it carries over to {_changes(better)}." if better else f"{said}."


def who_paid(result: HardenResult) -> str:
    """The classes that lost accuracy on untouched inputs beyond chance, or that none did."""
    known = [one for one in result.comparison.per_class if one.clean.difference is not None]
    lost = sorted((one for one in known if one.clean.only_b > one.clean.only_a), key=lambda one: one.clean.difference or 0.0)
    if not lost:
        return f"No class lost accuracy on untouched inputs{_small(known)}." if known else ""
    beyond = [one for one in lost if one.p_clean is not None and one.p_clean < ALPHA]
    most, others = (beyond or lost)[0], [one.name for one in beyond[1:]]
    pair = most.clean
    fell = (
        f"from {percent(pair.value_b)} to {percent(pair.value_a)}, by {points(pair.difference)} points "
        f"({points(pair.low)} to {points(pair.high)}, {samples(pair.n)})"
    )
    if not beyond:
        return f"No class lost accuracy on untouched inputs beyond chance{_small(known)}; {named(most)} fell most, {fell}."
    too = f" Classes {_listed(others)} lost beyond chance too." if len(others) > 1 else ""
    too = f" Class {others[0]} lost beyond chance too." if len(others) == 1 else too
    return f"On untouched inputs {named(most)} lost most: {fell}.{too}"


def _small(classes: Sequence[ClassComparison]) -> str:
    """What so few samples can show."""
    most = max(one.clean.n for one in classes)
    return f" (with {samples(most)} of a class at most, only large losses would show)" if most < MANY else ""


def _classes(result: HardenResult, eps: float) -> str:
    at = min(range(len(result.after.eps)), key=lambda one: abs(result.after.eps[one] - eps))
    text = which_classes(result.after, at)
    return f"After the training, {text[0].lower()}{text[1:]}" if result.after.eps[at] > 0 else ""


def _changes(rows: Sequence[Unseen]) -> str:
    """The names of some changes; where all are distortions, the severity that they share is said once."""
    distortions = [row.distortion for row in rows if row.distortion is not None]
    if len(rows) > 1 and len(distortions) == len(rows):
        return f"{_listed(distortions)} (severity {SEVERITY})"
    return _listed([row.name for row in rows])


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
