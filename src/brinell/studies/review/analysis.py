"""Figures of a review: the size at which half of the changes are noticed, for each class, and how often people name the class."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from brinell.analysis.folder_result import FolderResult, Result
from brinell.analysis.results import Rate
from brinell.analysis.robust_accuracy import rate
from brinell.core.errors import RequestError
from brinell.studies.review.psychometric import Curve, fit
from brinell.studies.review.records import Answer, Review, Trial


class GroupThreshold(Result):
    """The threshold of a group of answers: those of a class, or all."""

    name: str
    n: int
    """Answers to changed pairs."""
    noticed: int
    threshold: float | None
    """Size at which half of the changes are noticed, corrected for false alarms; null if it is outside the sizes shown."""
    low: float | None
    """Lower end of the 95 % interval; null if it is below all sizes shown."""
    high: float | None
    """Upper end; null if it is above all sizes shown."""


class SizeGroup(Result):
    """How often people name the class of the picture, and notice the change, at one size of the change."""

    eps: float
    """Mean size in the group; 0 for equal pairs."""
    right: Rate
    noticed: Rate


class ReviewResult(FolderResult):
    """The result of `brinell review`."""

    folder: str
    data: str
    norm: str
    change: str
    reviewers: list[str]
    answers: int
    trials: int
    catch: int
    """Equal pairs that were judged."""
    false_alarms: int
    """Equal pairs that were judged to differ."""
    overall: GroupThreshold | None
    """The threshold over all classes; null before the first changed pair is judged."""
    per_class: list[GroupThreshold]
    """Thresholds of the classes with a judged changed pair, in the order of the classes."""
    by_size: list[SizeGroup]
    """Answers by size of the change, ascending."""


def summarise(review: Review, curves: Mapping[int | None, Curve] | None = None) -> ReviewResult:
    """The figures of a review.

    Args:
        review: the review.
        curves: the result of `fit_curves`, if it exists already.

    Raises:
        RequestError: a damaged file.
    """
    answers = review.answers()
    curves = fit_curves(review, answers) if curves is None else curves
    equal = [answer for answer, trial in zip(answers, review.trials_of(answers), strict=True) if trial.eps == 0]
    request = review.request
    return ReviewResult(
        folder=str(review.path),
        data=str(request["data"]),
        norm=str(request["norm"]),
        change=str(request["change"]),
        reviewers=sorted({answer.reviewer for answer in answers}),
        answers=len(answers),
        trials=len(review.trials),
        catch=len(equal),
        false_alarms=sum(answer.differs for answer in equal),
        overall=_group_threshold("all classes", curves[None]) if None in curves else None,
        per_class=[_group_threshold(name, curves[i]) for i, name in enumerate(review.classes) if i in curves],
        by_size=_size_groups(review, answers),
    )


class Thresholds(NamedTuple):
    """Sizes at which people notice changes, in the units of the data."""

    norm: str
    overall: float
    """Size at which half of the changes are noticed, over all classes."""
    per_class: dict[int, float]
    """The same for each class with enough answers, by index."""
    answers: int


def thresholds(review: Review) -> Thresholds:
    """Sizes at which half of the changes are noticed. If fewer are noticed at the largest size shown, its lower limit counts.

    Raises:
        RequestError: the review is damaged, or has too few answers.
    """
    result = summarise(review)
    overall = None if result.overall is None else result.overall.threshold or result.overall.low
    if overall is None:
        raise RequestError(f"the answers in {review.path} are too few for a threshold: judge more pairs")
    sizes = {group.name: group.threshold or group.low for group in result.per_class}
    per_class = {i: size for i, name in enumerate(review.classes) if (size := sizes.get(name))}
    return Thresholds(result.norm, overall, per_class, result.answers)


def fit_curves(review: Review, answers: Sequence[Answer]) -> dict[int | None, Curve]:
    """Psychometric curve of each class with a judged changed pair; that of all classes under None.

    False alarms depend on the person and not on the class, so every curve uses all equal pairs.
    """
    trials = review.trials_of(answers)
    size = np.array([trial.eps for trial in trials], np.float64)
    label = np.array([trial.label for trial in trials], np.int64)
    differs = np.array([answer.differs for answer in answers], bool)
    curves: dict[int | None, Curve] = {}
    for group in (None, *range(len(review.classes))):
        rows = (size == 0) | (label == group if group is not None else True)
        if (curve := fit(size[rows], differs[rows])) is not None:
            curves[group] = curve
    return curves


def _group_threshold(name: str, curve: Curve) -> GroupThreshold:
    return GroupThreshold(name=name, n=curve.n, noticed=curve.noticed, threshold=curve.threshold, low=curve.low, high=curve.high)


def _size_groups(review: Review, answers: Sequence[Answer]) -> list[SizeGroup]:
    """Answers grouped by size of the change. Clipping alters sizes a little, so sizes within 15 % share a group."""
    groups: list[list[tuple[Answer, Trial]]] = []
    for answer, trial in sorted(zip(answers, review.trials_of(answers), strict=True), key=lambda pair: pair[1].eps):
        first = groups[-1][0][1].eps if groups else None
        if first is None or (trial.eps > 0) != (first > 0) or trial.eps > 1.15 * first:
            groups.append([])
        groups[-1].append((answer, trial))
    return [
        SizeGroup(
            eps=float(np.mean([trial.eps for _, trial in group])),
            right=rate(sum(answer.named == trial.label for answer, trial in group), len(group)),
            noticed=rate(sum(answer.differs for answer, _ in group), len(group)),
        )
        for group in groups
    ]
