"""The place that a figure would have among published entries, if it was measured by their protocol.

The entries are facts of RobustBench (model_info, MIT, as of 2025-03-31), in `robustbench.csv`:
accuracy on clean inputs, robust accuracy by AutoAttack, by which the leaderboard ranks, and the
lowest that anybody has found. There is a place only where data, distance, budget, criterion and
strength of the attacks agree; elsewhere the answer says what differs and where that moves a figure.
"""

import csv
import functools
import math
from collections.abc import Iterator, Sequence
from importlib.resources import files

from brinell.analysis.folder_result import Result
from brinell.analysis.results import ModelResult
from brinell.manifest import DataFacts

DATE = "2025-03-31"
"""Day of the last change of the entries."""
BUDGETS = {
    ("cifar10", "linf"): (8 / 255, "8/255"),
    ("cifar10", "l2"): (0.5, "0.5"),
    ("cifar100", "linf"): (8 / 255, "8/255"),
    ("imagenet", "linf"): (4 / 255, "4/255"),
}
"""Budget of each table of the leaderboard, as a number and as it is written."""
TEST_SETS = {"52de79a18ea05c77ed50982e5022f071": ("cifar10", 10_000)}
"""Brinell's digests of the test images, where they are known, with their number."""
NEIGHBOURS = 3
"""Entries above and below a figure that are shown."""
NORMS = {"linf": "Linf", "l2": "L2", "l1": "L1", "l0": "L0"}


class PublishedEntry(Result):
    """A published model; shares from 0 to 1."""

    data: str
    distance: str
    model: str
    clean: float
    autoattack: float
    """Robust accuracy by AutoAttack."""
    lowest: float
    """The lowest robust accuracy that is known."""


class PublishedPlace(Result):
    """The place of a figure among the entries of RobustBench."""

    comparable: bool
    """True if the protocols agree so far that a place means something."""
    differences: list[str]
    """Differences from the protocol: cautions if comparable, else reasons against a place."""
    place: int | None = None
    """By the figures of AutoAttack, 1 for the best; ties share the better place."""
    best: int | None = None
    """The best place that the interval of the figure allows."""
    worst: int | None = None
    """The worst one."""
    entries: int | None = None
    """Published entries."""
    place_by_lowest: int | None = None
    """The place by the lowest known figures of the entries."""
    above: list[PublishedEntry] = []
    """Entries next above the figure, the nearest last."""
    below: list[PublishedEntry] = []
    """Entries next below it, or equal."""


@functools.cache
def entries_of(data: str, norm: str) -> list[PublishedEntry]:
    """The entries of a table of the leaderboard, the most robust first."""
    text = (files(__package__) / "robustbench.csv").read_text(encoding="utf-8")
    figures = ("clean", "autoattack", "lowest")
    return [
        PublishedEntry.model_validate(
            row | {name: round(float(row[name]) / 100, 6) for name in figures}
        )
        for row in csv.DictReader(text.splitlines())
        if (row["data"], row["distance"]) == (data, norm)
    ]


def compare_with_entries(
    result: ModelResult, position: int, data: DataFacts, *, recommended: bool
) -> PublishedPlace:
    """The place of a robust accuracy among the entries of RobustBench, or why it has none.

    Args:
        result: the figures of the model.
        position: position of the budget.
        data: the data of the run.
        recommended: True if budgets differ by sample.
    """
    figure = result.robust_accuracy[position]
    differences = [*_refusals(result, position, data, recommended)]
    if figure.value is None or figure.low is None or figure.high is None:
        differences.append("no sample was judged")
    if differences:
        return PublishedPlace(comparable=False, differences=differences)

    test_set, size = TEST_SETS[data.digest]
    entries = entries_of(test_set, result.distance)
    published = [entry.autoattack for entry in entries]
    # The ends of the interval give the places that are still possible.
    place = place_among(figure.value, published)
    return PublishedPlace(
        comparable=True,
        differences=[*_cautions(result, size)],
        place=place,
        best=place_among(figure.high, published),
        worst=place_among(figure.low, published),
        entries=len(entries),
        place_by_lowest=place_among(figure.value, [entry.lowest for entry in entries]),
        above=entries[max(place - 1 - NEIGHBOURS, 0) : place - 1],
        below=entries[place - 1 : place - 1 + NEIGHBOURS],
    )


def place_among(share: float | None, rivals: Sequence[float]) -> int:
    """The place of a share among others: 1 more than those that are larger in hundredths of a
    percent, as the leaderboard writes figures.
    """
    return 1 + sum(round(rival, 4) > round(share or 0.0, 4) for rival in rivals)


def _refusals(
    result: ModelResult, position: int, data: DataFacts, recommended: bool
) -> Iterator[str]:
    """The differences that make a place meaningless."""
    test_set, _ = TEST_SETS.get(data.digest, ("", 0))
    if not test_set:
        names = ", ".join(name for name, _ in TEST_SETS.values())
        yield f"{data.name} is not a test set of RobustBench whose digest is known ({names})"
    elif (test_set, result.distance) not in BUDGETS:
        yield f"RobustBench has no entries in {NORMS.get(result.distance, result.distance)}"
    else:
        eps, text = BUDGETS[test_set, result.distance]
        ours = result.eps[position]
        if not math.isclose(ours, eps, rel_tol=1e-6):
            # A smaller budget breaks fewer samples.
            effect = "flatters" if ours < eps else "lowers"
            yield f"the budget is {result.eps_text[position]} in place of {text}, which {effect} it"

    if recommended:
        yield "the budgets differ by sample"
    if result.criterion != "misclassified":
        yield f"an attack succeeds if {result.criterion}, and theirs if misclassified"
    if result.weak is not None:
        yield f"the attacks ({result.weak}) are weaker than AutoAttack, which flatters the figure"
    if failed := [check.code for check in result.checks if check.passed is False]:
        yield f"checks failed ({', '.join(failed)}), so that the figure may be too high"


def _cautions(result: ModelResult, size: int) -> Iterator[str]:
    """The cautions about a place."""
    if result.n < size:
        yield f"{result.n:,} of the {size:,} test images were attacked"
    yield f"attacked by {result.attacks} in place of AutoAttack's standard version"
