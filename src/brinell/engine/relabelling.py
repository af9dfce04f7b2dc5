"""Labels that a model's answers fit if they are counted or ordered differently: shifted, with class 0 written last, permuted."""

from collections.abc import Sequence
from math import comb

import numpy as np

from brinell.core.class_names import NEVER, option_text
from brinell.core.intervals import wilson
from brinell.core.record import Array

SIGNIFICANCE = 1e-3
"""Largest probability of a permutation's gains by chance, at which it is proposed."""
LEAST_RATE = 0.5
"""Least accuracy with other labels, at which they are proposed."""
PLACE_SIGNIFICANCE = 0.05
"""Largest probability of a label's answers by chance, at which its place in the model's order counts as known."""
MAX_LISTED = 4
"""Number of pairs of classes that a message lists."""
MOST_UNKNOWN = 10
"""Number of unknown places that a message lists."""


def relabelled(pred: Array, labels: Array, classes: Sequence[str], count: int) -> tuple[float, str]:
    """Accuracy under a shift or permutation of the labels that fits far better, with a clause; 0 if there is none."""
    n, k = len(labels), int((pred == labels).sum())
    last = int(labels.max())
    modulo = int((pred == labels % last).sum()) if labels.min() > 0 and last > 1 and not (pred == last).any() else 0
    shifted, by = max((int((pred == labels + by).sum()), by) for by in (1, -1))
    permutation, matches, wins, losses = _permuted(pred, labels)
    best = max(shifted, matches, modulo)
    if best < LEAST_RATE * n or not far_better(k, best, n) and sign_test(wins, losses) > SIGNIFICANCE:
        return 0.0, ""
    if modulo == best and modulo > shifted and far_better(k, modulo, n):
        return modulo / n, (
            f"the class answered is the remainder of the label by {last} on {modulo}: class 0 seems to be written as {last}; "
            f"take the remainder of the labels (y % {last})"
        )
    if shifted >= matches and far_better(k, shifted, n):
        counted = "from 1 and the model counts its own from 0" if by < 0 else "from 0 and the model has another class before"
        return shifted / n, (
            f"the class answered is the label {'plus' if by > 0 else 'minus'} 1 on {shifted}: the labels seem to be counted "
            f"{counted}; {'add 1 to' if by > 0 else 'take 1 from'} the labels"
        )
    proven, likely = _proven(pred, labels, permutation, classes, count), _likely(permutation, classes, count)
    swaps = [(label, answer) for answer, label in sorted(proven.items()) if label != answer]
    listing = ", ".join(f"{answer} is the label {_name(classes, label)}" for label, answer in swaps[:MAX_LISTED])
    remainder = f" and {len(swaps) - MAX_LISTED} more" if len(swaps) > MAX_LISTED else ""
    detail = f" (the model's class {listing}{remainder})" if swaps else ""
    return matches / n, (
        f"with the classes in another order right on {matches}{detail}: {_order_remedy(proven, likely, classes, labels)}"
    )


def _proven(pred: Array, labels: Array, permutation: dict[int, int], classes: Sequence[str], count: int) -> dict[int, int]:
    """The part of a permutation that the samples prove; the last place follows from all others.

    A label's place is proven if its samples get that answer significantly more often than any other.
    """
    proven: dict[int, int] = {}
    for answer, label in permutation.items():
        answers, counts = np.unique(pred[labels == label], return_counts=True)
        rival = int(counts[answers != answer].max(initial=0))
        if sign_test(int(counts[answers == answer].sum()), rival) <= PLACE_SIGNIFICANCE:
            proven[answer] = label
    free, places = {*range(count)} - proven.keys(), {*range(count)} - {*proven.values()}
    if len(free) == len(places) == 1 and len(classes) in (0, count):
        proven[free.pop()] = places.pop()
    return proven


def _likely(permutation: dict[int, int], classes: Sequence[str], count: int) -> dict[int, int]:
    """The whole order as the samples suggest it: each class of the model to its label."""
    free = {*range(count)} - {*permutation, *permutation.values()}  # nothing speaks against their own places
    labels_of = {answer: answer for answer in free} | permutation
    spare = iter([label for label in range(max(count, len(classes))) if label not in labels_of.values()])
    return {answer: labels_of[answer] if answer in labels_of else next(spare) for answer in range(count)}


def _order_remedy(proven: dict[int, int], likely: dict[int, int], classes: Sequence[str], labels: Array) -> str:
    """What to do about classes in another order: the option that names the model's classes, if every place is proven."""
    advice = "bring the labels, or the list of classes, into the model's order"
    unknown = [answer for answer in likely if answer not in proven]
    if not unknown:
        text = option_text([_name(classes, label) for label in likely.values()])
        return f"{advice}; a spec of a model takes the option {text}" if text else advice
    names = ", ".join(
        f"{answer} (likely {_name(classes, likely[answer])}{_count(labels, likely[answer])})" for answer in unknown[:MOST_UNKNOWN]
    )
    remainder = f" and {len(unknown) - MOST_UNKNOWN} more" if len(unknown) > MOST_UNKNOWN else ""
    subject = f"the model's class{'es' if len(unknown) > 1 else ''} {names}{remainder}"
    return (
        f"{advice}; too few samples tell {len(unknown)} of its {len(likely)} places, {subject}: "
        "look the order up where the model comes from, or audit more samples of these classes"
    )


def _count(labels: Array, label: int) -> str:
    """The number of samples of a label, in words after its name."""
    count = int((labels == label).sum())
    return f", {count} sample{'s' * (count != 1)}"


def _name(classes: Sequence[str], index: int) -> str:
    """Name of a class, or its number if it has none."""
    return classes[index] if index < len(classes) else str(index)


def sign_test(wins: int, losses: int) -> float:
    """The probability of at least so many wins in wins + losses fair games."""
    games = wins + losses
    return float(sum(comb(games, count) for count in range(wins, games + 1)) / 2**games)


def _permuted(pred: Array, labels: Array) -> tuple[dict[int, int], int, int, int]:
    """Fit a permutation of the classes to the answers; return it with the number of samples on which it is right.

    The last two numbers count the samples on which only the permutation is right, and only the order as it is.

    The count is cross-validated: each half of the samples is judged by the permutation fitted to the other half, so that many
    classes with few samples do not inflate it. The returned permutation maps answers to labels and is fitted to all samples.
    """
    order = np.lexsort((np.arange(len(labels)), labels))
    halves = order[::2], order[1::2]
    matches, wins, losses = 0, 0, 0
    for fit_half, test_half in (halves, halves[::-1]):
        permutation = _match(pred[fit_half], labels[fit_half])
        permuted = np.array([permutation.get(answer, NEVER) for answer in pred[test_half].tolist()], dtype=np.int64)
        before, after = pred[test_half] == labels[test_half], permuted == labels[test_half]
        matches += int(after.sum())
        wins += int((after & ~before).sum())
        losses += int((before & ~after).sum())
    return _match(pred, labels), matches, wins, losses


def _match(pred: Array, labels: Array) -> dict[int, int]:
    """Match answers to labels one to one, greedily by the frequency of the pairs."""
    pairs, counts = np.unique(np.stack([pred, labels]), axis=1, return_counts=True)
    mapping: dict[int, int] = {}
    used: set[int] = set()
    for row in np.argsort(-counts, kind="stable"):
        answer, true = int(pairs[0, row]), int(pairs[1, row])
        if answer not in mapping and true not in used:
            mapping[answer] = true
            used.add(true)
    return mapping


def far_better(correct: int, improved: int, n: int) -> bool:
    """True if `improved` of `n` is significantly more than `correct` of `n`: their intervals do not overlap."""
    interval, improved_interval = wilson(correct, n), wilson(improved, n)
    return interval is not None and improved_interval is not None and improved_interval.low > interval.high
