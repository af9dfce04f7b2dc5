"""What people saw: per class the size at which half of the changes are noticed, and whether the class is still named right."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from brinell.analysis.results import FolderResult, Rate, Result
from brinell.analysis.robust_accuracy import rate
from brinell.core.errors import RequestError
from brinell.studies.review.psychometric import Curve, fit
from brinell.studies.review.records import Answer, Review, Trial


class Noticed(Result):
    """One group of answers: a class, or all."""

    name: str
    n: int
    """Answers to changed pairs."""
    noticed: int
    threshold: float | None
    """Size at which half of the changes are noticed, false alarms taken out; None where what was shown does not reach it."""
    low: float | None
    """Lower end of the 95 % interval; None: below everything shown."""
    high: float | None
    """Upper end; None: above everything shown."""


class Named(Result):
    """How often the class of the picture was still named right, at one size of the change."""

    eps: float
    """Mean size in the group; 0 for equal pairs."""
    right: Rate
    noticed: Rate


class ReviewResult(FolderResult):
    """What `brinell review --json` prints at the end."""

    folder: str
    data: str
    norm: str
    change: str
    reviewers: list[str]
    answered: int
    trials: int
    catch: int
    """Equal pairs that were judged."""
    false_alarms: int
    """Of these, how many were said to differ."""
    overall: Noticed | None
    """None as long as no changed pair was judged."""
    per_class: list[Noticed]
    """Classes of which a changed pair was judged, in their order."""
    by_size: list[Named]
    """Ascending."""


def summarise(review: Review, curves: Mapping[int | None, Curve] | None = None) -> ReviewResult:
    """The review in figures.

    Args:
        review: the review.
        curves: what `fits` gave, where it is at hand.

    Raises:
        RequestError: a damaged file.
    """
    answers = review.answers()
    curves = fits(review, answers) if curves is None else curves
    equal = [answer for answer, trial in zip(answers, review.answered(answers), strict=True) if trial.eps == 0]
    request = review.request
    return ReviewResult(
        folder=str(review.path),
        data=str(request["data"]),
        norm=str(request["norm"]),
        change=str(request["change"]),
        reviewers=sorted({answer.reviewer for answer in answers}),
        answered=len(answers),
        trials=len(review.trials),
        catch=len(equal),
        false_alarms=sum(answer.differs for answer in equal),
        overall=_noticed("all classes", curves[None]) if None in curves else None,
        per_class=[_noticed(name, curves[i]) for i, name in enumerate(review.classes) if i in curves],
        by_size=_by_size(review, answers),
    )


class Thresholds(NamedTuple):
    """What people noticed, in the units of the data."""

    norm: str
    overall: float
    """Size at which half of the changes are noticed, over all classes."""
    per_class: dict[int, float]
    """The same for the classes whose answers tell, by index."""
    answers: int


def thresholds(review: Review) -> Thresholds:
    """From which size on changes are noticed. Where fewer than half of the largest ones shown were, it is at least that size.

    Raises:
        RequestError: a damaged review, or one whose answers do not tell.
    """
    result = summarise(review)
    overall = None if result.overall is None else result.overall.threshold or result.overall.low
    if overall is None:
        raise RequestError(f"the answers in {review.path} do not tell which changes are noticed: judge more pairs")
    sizes = {one.name: one.threshold or one.low for one in result.per_class}
    per_class = {i: size for i, name in enumerate(review.classes) if (size := sizes.get(name))}
    return Thresholds(result.norm, overall, per_class, result.answered)


def fits(review: Review, answers: Sequence[Answer]) -> dict[int | None, Curve]:
    """The curve of every class that was shown changed, and under None that of all.

    False alarms are a habit of the person, not of the class: every curve is given all equal pairs.
    """
    trials = review.answered(answers)
    size = np.array([trial.eps for trial in trials], np.float64)
    label = np.array([trial.label for trial in trials], np.int64)
    differs = np.array([answer.differs for answer in answers], bool)
    found: dict[int | None, Curve] = {}
    for group in (None, *range(len(review.classes))):
        rows = (size == 0) | (label == group if group is not None else True)
        if (curve := fit(size[rows], differs[rows])) is not None:
            found[group] = curve
    return found


def _noticed(name: str, curve: Curve) -> Noticed:
    return Noticed(name=name, n=curve.n, noticed=curve.noticed, threshold=curve.threshold, low=curve.low, high=curve.high)


def _by_size(review: Review, answers: Sequence[Answer]) -> list[Named]:
    """Answers grouped by size; what was asked as one size differs a little once clipped, so sizes within 15 % share a row."""
    groups: list[list[tuple[Answer, Trial]]] = []
    for answer, trial in sorted(zip(answers, review.answered(answers), strict=True), key=lambda pair: pair[1].eps):
        first = groups[-1][0][1].eps if groups else None
        if first is None or (trial.eps > 0) != (first > 0) or trial.eps > 1.15 * first:
            groups.append([])
        groups[-1].append((answer, trial))
    return [
        Named(
            eps=float(np.mean([trial.eps for _, trial in group])),
            right=rate(sum(answer.named == trial.label for answer, trial in group), len(group)),
            noticed=rate(sum(answer.differs for answer, _ in group), len(group)),
        )
        for group in groups
    ]
