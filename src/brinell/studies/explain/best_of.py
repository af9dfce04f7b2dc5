"""The best of several methods on the same samples, and the methods that may equal it."""

from collections.abc import Mapping, Sequence

from brinell.analysis.folder_result import Result
from brinell.analysis.inference import significant
from brinell.analysis.means import mean_difference
from brinell.analysis.statements import Statement, Subject, state
from brinell.core.record import Array

QUANTITIES = {
    "dice": "overlap with the objects (Dice)",
    "iou": "overlap with the objects (IoU)",
    "gain": "gap between insertion and deletion",
}
"""The measures in words."""


class MethodBehind(Result):
    """A method behind the best one, by the mean difference on the same samples."""

    value: float
    """The best minus this method."""
    low: float | None
    high: float | None
    """95 % interval; null where the samples are too few for one."""
    told: bool
    """True if the difference is significant: paired p-value times the number of pairs
    of methods.
    """


class BestMethod(Result):
    """The best method by a measure."""

    measure: str
    """dice, iou or gain."""
    name: str
    behind: dict[str, MethodBehind]
    """The other methods."""
    statement: Statement
    """That it has the highest mean, and the methods that may have as high a one."""


def best_of(
    measure: str, columns: Mapping[str, Array], groups: Array, candidates: Sequence[str]
) -> BestMethod | None:
    """The candidate with the largest mean, and how far the others are behind it.

    Which of them is best is seen from the same samples, so a p-value counts for every pair.

    Args:
        measure: name of the measure.
        columns: (n,) values of each method on the same samples, NaN for none.
        groups: (n,) group of related samples of each.
        candidates: methods that may be the best; controls only stand behind it.

    Returns:
        None where no candidate was measured.
    """
    means = {
        name: estimate.value
        for name in columns
        if (estimate := mean_difference(columns[name], groups)) is not None
    }
    measured = [name for name in candidates if name in means]
    if not measured:
        return None
    best = max(measured, key=lambda name: means[name])
    pairs = len(means) * (len(means) - 1) // 2
    behind = {}
    p_values = {}
    # Bonferroni's correction: each p-value times the number of pairs.
    for name in means:
        gap = None if name == best else mean_difference(columns[best] - columns[name], groups)
        if gap is not None:
            low, high = gap.interval or (None, None)
            p_values[name] = min(1.0, gap.p * pairs)
            told = significant(p_values[name])
            behind[name] = MethodBehind(value=gap.value, low=low, high=high, told=told)

    rivals = [name for name, p in p_values.items() if not significant(p)]
    statement = state(
        "most",
        subjects=[Subject(name=best, value=means[best])],
        quantity=QUANTITIES[measure],
        eps_text="",
        n=len(groups),
        rivals=rivals,
        compared=len(p_values),
        p=max(p_values.values(), default=None),
        supported=bool(p_values) and not rivals,
        family=pairs,
    )
    return BestMethod(measure=measure, name=best, behind=behind, statement=statement)
