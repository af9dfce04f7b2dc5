"""Sentences that interpret a hardening, each computed from its figures. Changes within chance are never reported as findings."""

from collections.abc import Sequence

from brinell.analysis.results import ClassComparison, PairedRate
from brinell.analysis.robust_accuracy import minus
from brinell.pages.format import class_label, norm, percent, points, samples, short, which_classes
from brinell.studies.harden.analysis import HardenResult, Unseen
from brinell.studies.harden.records import SEVERITY, STEPS, pgd_row_name

ALPHA = 0.05
"""Significance level of the corrected p-values."""
MAX_NAMED = 4
"""Most changes or classes that a sentence names."""
LARGE_CLASS = 20
"""Class size from which sentences do not mention the number of samples."""


def reading(result: HardenResult) -> list[str]:
    """Sentences on the gain at the training budget, its cost in clean accuracy, its generalisation, and the losses by class."""
    pair = min(result.comparison.robust, key=lambda rate: abs(rate.eps - result.eps))
    sentences = [
        f"At {short(pair.eps)} ({norm(result.norm)}) {_change_text('robust accuracy', pair)}",
        _weaker_audit(result, pair),
        f"On clean inputs {_change_text('accuracy', result.comparison.clean)}",
        generalisation(result.unseen),
        class_losses(result),
        _weakest_classes(result, pair.eps),
    ]
    return [sentence for sentence in sentences if sentence]


def _change_text(quantity: str, pair: PairedRate) -> str:
    if pair.difference is None or pair.low is None or pair.high is None:
        return f"the change of the {quantity} is unknown."
    if pair.difference == 0:
        return (
            f"the {quantity} was {percent(pair.value_a)} before and after; with {samples(pair.n)}, a change of "
            f"{100 * max(pair.high, -pair.low):.1f} points cannot be excluded."
        )
    word = "rose" if pair.difference > 0 else "fell"
    chance = "" if pair.low > 0 or pair.high < 0 else "; this may be chance"
    return (
        f"the {quantity} {word} from {percent(pair.value_b)} to {percent(pair.value_a)}, by {points(pair.difference)} points "
        f"({points(pair.low)} to {points(pair.high)}){chance}."
    )


def _weaker_audit(result: HardenResult, pair: PairedRate) -> str:
    """A warning if PGD alone finds a lower robust accuracy than the audit on the same samples, else an empty text."""
    matches = [row for row in result.unseen if row.name == pgd_row_name(result.norm, result.eps) and row.n == pair.n]
    if not matches or pair.eps != result.eps or (minus(pair.value_a, matches[0].after.value) or 0.0) <= 0:
        return ""
    return (
        f"PGD with {STEPS} steps leaves {percent(matches[0].after.value)} there, less than the attacks of the audit. The robust "
        "accuracy is at most that: audit the model with stronger attacks."
    )


def generalisation(rows: Sequence[Unseen]) -> str:
    """A sentence on the changes outside the training under which the hardened model is significantly better or worse."""
    unseen = [row for row in rows if not row.seen]
    if not unseen:
        return ""
    significant = [row for row in unseen if row.p < ALPHA]
    gains, losses = [row for row in significant if row.difference > 0], [row for row in significant if row.difference < 0]
    counts = f"better in {len(gains)} and worse in {len(losses)}"
    text = f"Under {len(unseen)} changes that the training did not use, the model is significantly {counts}"
    if losses:
        return f"{text}: robustness does not generalise to {_change_names(losses)}."
    return f"{text}: robustness generalises to {_change_names(gains)}." if gains else f"{text}."


def class_losses(result: HardenResult) -> str:
    """A sentence on the classes whose clean accuracy fell significantly, or on their absence."""
    classes = [comparison for comparison in result.comparison.per_class if comparison.clean.difference is not None]
    losses = sorted(
        (comparison for comparison in classes if comparison.clean.only_b > comparison.clean.only_a),
        key=lambda one: one.clean.difference or 0.0,
    )
    if not losses:
        return f"No class lost accuracy on clean inputs{_size_note(classes)}." if classes else ""
    significant = [comparison for comparison in losses if comparison.p_clean is not None and comparison.p_clean < ALPHA]
    largest, names = (significant or losses)[0], [comparison.name for comparison in significant[1:]]
    pair = largest.clean
    change = (
        f"from {percent(pair.value_b)} to {percent(pair.value_a)}, by {points(pair.difference)} points "
        f"({points(pair.low)} to {points(pair.high)}, {samples(pair.n)})"
    )
    if not significant:
        note = _size_note(classes)
        return f"No class lost accuracy on clean inputs significantly{note}; {class_label(largest)} fell most, {change}."
    addition = f" Classes {_join_names(names)} also lost significantly." if len(names) > 1 else ""
    addition = f" Class {names[0]} also lost significantly." if len(names) == 1 else addition
    return f"On clean inputs {class_label(largest)} lost most: {change}.{addition}"


def _size_note(classes: Sequence[ClassComparison]) -> str:
    """A note that small classes reveal only large losses, or an empty text."""
    largest = max(comparison.clean.n for comparison in classes)
    return f" (with {samples(largest)} of a class at most, only large losses would show)" if largest < LARGE_CLASS else ""


def _weakest_classes(result: HardenResult, eps: float) -> str:
    """Sentence on the weakest classes after the training."""
    index = min(range(len(result.after.eps)), key=lambda i: abs(result.after.eps[i] - eps))
    text = which_classes(result.after, index)
    return f"After the training, {text[0].lower()}{text[1:]}" if result.after.eps[index] > 0 else ""


def _change_names(rows: Sequence[Unseen]) -> str:
    """The names of some changes; if all are distortions, their common severity appears once."""
    distortions = [row.distortion for row in rows if row.distortion is not None]
    if len(rows) > 1 and len(distortions) == len(rows):
        return f"{_join_names(distortions)} (severity {SEVERITY})"
    return _join_names([row.name for row in rows])


def _join_names(names: Sequence[str]) -> str:
    """The first names, and the number of others."""
    return ", ".join(names[:MAX_NAMED]) + (f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else "")
