"""Sentences that interpret a corruption study, each computed from its figures."""

from brinell.analysis.inference import significant
from brinell.pages.format import percent, points
from brinell.studies.corruption.results import CorruptModel, CorruptResult, End

MAX_NAMED = 3
"""Most corruptions that a clause names."""


def reading(result: CorruptResult) -> list[str]:
    """Sentences on the accuracy under corruption, the worst kind, the mean corruption error, and the cost of placement."""
    sentences = [_model(model, result) for model in result.models]
    return [*sentences, *([_placement(result)] if any(level.cost is not None for level in result.kinds) else [])]


def _model(model: CorruptModel, result: CorruptResult) -> str:
    text = f"{model.model}: {percent(model.clean.value)} on clean inputs, {percent(model.accuracy)} under corruption on average"
    mce = model.mce
    if mce.value is not None and model.model != result.reference:
        ends = "no interval" if mce.low is None or mce.high is None else f"{100 * mce.low:.1f} to {100 * mce.high:.1f}"
        text += f"; mean corruption error {100 * mce.value:.1f} ({ends}), where {result.reference} has 100"
    if model.most is not None and model.least is not None:
        text += f". {_end(model, model.most, 'most', 'much')}; {_end(model, model.least, 'least', 'little')}"
    return text + "."


def _end(model: CorruptModel, end: End, extreme: str, amount: str) -> str:
    """Clause on the corruption that costs most or least."""
    accuracy = next(kind.accuracy for kind in model.kinds if kind.kind == end.kind)
    active = sum(kind.active for kind in model.kinds)
    clause = f"{end.kind} costs {extreme} ({percent(accuracy)} left)"
    if not end.rivals:
        return f"{clause}, by more than chance"
    names = ", ".join(end.rivals) if len(end.rivals) <= MAX_NAMED else f"{len(end.rivals)} of the other {active - 1}"
    rank = "lowest" if extreme == "most" else "highest"
    return f"{end.kind} has the {rank} accuracy ({percent(accuracy)}), but {names} may cost as {amount}"


def _placement(result: CorruptResult) -> str:
    """Sentence on placed corruptions relative to uniform ones."""
    levels = [level for level in result.kinds if level.cost is not None]
    costs = [level.cost or 0.0 for level in levels]
    losses = sum(level.cost is not None and level.cost < 0 and significant(level.p) for level in levels)
    gains = sum(level.cost is not None and level.cost > 0 and significant(level.p) for level in levels)
    left_out = len(result.kinds) - len(levels)
    scope = f" of {len(levels)} cells" + (f" ({left_out} of {len(result.kinds)} have no placement)" if left_out else "")
    return (
        f"Placed on patches within the same L2, corruptions change accuracy by {points(sum(costs) / len(costs))} points on "
        f"average relative to corruption of the whole input. Placement costs more in {losses}{scope} and less in {gains} "
        "(McNemar, corrected for the number of cells); in the others no difference is shown."
    )
