"""How often people choose the map of each method, with the measures of the study of maps.

A person sees two maps of one input, without names, and chooses the one that shows better what
speaks for the class, or neither. Every method meets every other one about as often, so that the
shares of the methods are comparable. A choice of neither counts half. Comparisons of one input are
one group: its maps come back in several pairs.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from brinell.analysis.folder_result import Result
from brinell.analysis.inference import LEAST_CORRELATED, correlate_ranks, holm, significant
from brinell.analysis.means import mean_difference
from brinell.core.record import Array
from brinell.manifest import Content, Count, Facts, Listing, Number, TableOf
from brinell.reports.numbers import counted, listed, percent
from brinell.reports.values import Cell, Percent, Points, PValue, Table
from brinell.reports.values import Measure as Interval

MEASURES = {
    "dice": "Dice",
    "iou": "IoU",
    "gain": "gap",
    "deletion": "deletion",
    "insertion": "insertion",
}
"""Measures of a study of maps, with their titles; more is better in all but deletion."""
VERDICTS = {"more": "more often than not", "less": "less often than not", None: "not shown"}


class MapAnswer(Content):
    """A person's answer to a pair of maps."""

    trial: Count
    """Number of the pair, from 0."""
    reviewer: str
    """Name of the person; may be empty."""
    preference: Literal["left", "right"] | None
    """The map that shows better what speaks for the class; null for neither."""


class MapAnswerFile(Content):
    """The answers that the page saves, and those of all persons that the folder keeps."""

    review: str
    """Digest of the pairs that were judged."""
    answers: Listing[MapAnswer]


class MethodMeasure(Content):
    """A mean over the samples of the study of maps, with its 95 % interval."""

    value: Number
    low: Number | None
    high: Number | None


class ReviewFacts(Facts):
    """Facts that the request leaves open."""

    methods: TableOf[dict[str, MethodMeasure]]
    """By method of the maps its measures; empty for a review of changes."""


class MethodChoice(Result):
    """How often people choose the map of one method."""

    name: str
    """The method as the study of maps names it."""
    n: int
    """Comparisons with another method."""
    wins: int
    """Those in which its map was chosen."""
    ties: int
    """Those in which neither map was chosen."""
    value: float | None
    """Share of the comparisons in which it was chosen; neither counts half. Null without any."""
    low: float | None
    """Lower end of its 95 % interval over inputs; null where these are too few."""
    high: float | None
    """Upper end."""
    p: float | None
    """P-value of a share of one half, corrected for the number of methods (Holm 1979)."""

    @property
    def verdict(self) -> Literal["more", "less"] | None:
        """Whether it is shown to be chosen more or less often than not; None if neither."""
        if not significant(self.p) or self.value is None:
            return None
        return "more" if self.value > 0.5 else "less"


def choices_of(
    names: Sequence[str],
    pairs: Array,
    inputs: Array,
    preferences: Sequence[str | None],
) -> list[MethodChoice]:
    """The choices by method.

    Args:
        names: of the methods.
        pairs: (answers, 2) the methods on the left and on the right.
        inputs: (answers,) the input that was explained.
        preferences: left, right or None, by answer.
    """
    # An empty winner is a tie, half a point for both.
    sides = np.array([preference or "" for preference in preferences], dtype=object)
    winner = np.where(sides == "left", pairs[:, 0], np.where(sides == "right", pairs[:, 1], ""))
    choices = []
    for name in names:
        index = np.flatnonzero((pairs == name).any(axis=1))
        scores = np.where(winner[index] == name, 1.0, np.where(winner[index] == "", 0.5, 0.0))
        choices.append(_choice(name, scores, inputs[index]))

    measured = [position for position, choice in enumerate(choices) if choice.p is not None]
    p_values = [choices[position].p or 0.0 for position in measured]
    for position, p in zip(measured, holm(p_values), strict=True):
        choices[position] = choices[position].model_copy(update={"p": p})
    return choices


def _choice(name: str, scores: Array, inputs: Array) -> MethodChoice:
    """A method by its scores, 1 for a win and 0.5 for a tie; its p-value is not corrected yet."""
    estimate = mean_difference(scores - 0.5, inputs)
    low, high = None, None
    if estimate is not None and estimate.interval is not None:
        low, high = np.clip(np.add(estimate.interval, 0.5), 0, 1).tolist()

    return MethodChoice(
        name=name,
        n=len(scores),
        wins=int((scores == 1).sum()),
        ties=int((scores == 0.5).sum()),
        value=None if estimate is None else estimate.value + 0.5,
        low=low,
        high=high,
        p=None if estimate is None else estimate.p,
    )


def choice_sentences(choices: Sequence[MethodChoice]) -> Iterator[str]:
    """The method that people choose most often, and which are shown not to be chosen by chance."""
    measured = [choice for choice in choices if choice.value is not None]
    if not measured:
        yield "No pair of maps has been judged yet."
        return

    best = max(measured, key=lambda choice: choice.value or 0.0)
    yield (
        f"People choose the map of {best.name} most often: in {percent(best.value)} of "
        f"{counted(best.n, 'comparison')} with another method."
    )

    texts = []
    for verdict in ("more", "less"):
        names = [choice.name for choice in measured if choice.verdict == verdict]
        if names:
            texts.append(f"{verdict} often than not: {listed(names, len(names))}")
    yield (
        f"Shown to be chosen {'; '.join(texts)}."
        if texts
        else "No method is shown to be chosen more or less often than the others."
    )


def choice_tables(choices: Sequence[MethodChoice], facts: ReviewFacts) -> Iterator[Table]:
    """The choices with the measures of the methods, the most often chosen first, and whether
    both agree.
    """
    if not any(choice.n for choice in choices):
        return
    measures = [
        key for key in MEASURES if any(key in figures for figures in facts.methods.values())
    ]

    rows: list[list[Cell]] = []
    for choice in sorted(choices, key=lambda choice: -(choice.value or 0.0)):
        figures = facts.methods[choice.name]
        rows.append(
            [
                choice.name,
                Percent(choice.value, choice.low, choice.high),
                choice.n,
                choice.ties,
                None if choice.p is None else PValue(choice.p),
                VERDICTS[choice.verdict],
                *(_cell(key, figures.get(key)) for key in measures),
            ]
        )

    yield Table(
        title="People's choice beside the measures",
        columns=(
            "method",
            "chosen",
            "comparisons",
            "of them neither",
            "p",
            "chosen by people",
            *(MEASURES[key] for key in measures),
        ),
        rows=rows,
        text="Share of the comparisons with another method in which people chose the map; neither "
        "counts half, so that the mean over the methods is about one half. Intervals and p-values "
        "are over inputs, p-values corrected for the number of methods. The measures are those of "
        "the study of maps, over all of its samples.",
        name="choices",
        terminal=True,
    )
    if len(choices) >= LEAST_CORRELATED and measures:
        yield _agreement_table(choices, facts, measures)


def _cell(key: str, figure: MethodMeasure | None) -> Cell:
    if figure is None:
        return None
    kind = Points if key == "gain" else Percent
    return kind(figure.value, figure.low, figure.high)


def _agreement_table(
    choices: Sequence[MethodChoice], facts: ReviewFacts, measures: Sequence[str]
) -> Table:
    """Rank correlation over the methods of people's choice with each measure."""
    rows: list[list[Cell]] = []
    for key in measures:
        pairs = [
            (choice.value, facts.methods[choice.name][key].value)
            for choice in choices
            if choice.value is not None and key in facts.methods[choice.name]
        ]
        # Less is better in some measures, which the sign of the correlation shows.
        figure = correlate_ranks([pair[0] for pair in pairs], [pair[1] for pair in pairs])
        rows.append([MEASURES[key], figure.n, Interval(figure.value, figure.low, figure.high)])

    return Table(
        title="Do the measures agree with people?",
        columns=("measure", "methods", "rank correlation"),
        rows=rows,
        text="Spearman's rank correlation over the methods of people's choice with the measure; "
        "95 % interval by Fisher's transform. Less is better in deletion alone.",
        name="agreement",
        terminal=True,
    )
